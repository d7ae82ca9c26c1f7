"""Train and compare networks on photographs, and fill docs/imagenet.md."""

from studies.common.commands import call
from studies.photographs.command import run
from studies.photographs.page import page

if __name__ == "__main__":
    call(run, page)
