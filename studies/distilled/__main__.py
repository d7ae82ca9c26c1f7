"""Train small networks on the score maps of a large model, for docs/frontier.md."""

from studies.common.commands import call
from studies.distilled.command import distilled

if __name__ == "__main__":
    call(distilled)
