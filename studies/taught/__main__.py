"""Train networks whose targets come from teachers that have not seen the image, for docs/frontier.md."""

from studies.common.commands import call
from studies.taught.command import taught

if __name__ == "__main__":
    call(taught)
