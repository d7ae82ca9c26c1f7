"""Fill the tables of docs/reproduction.md: the paper's numbers beside ours."""

from studies.common.commands import call
from studies.reproduction.command import reproduction

if __name__ == "__main__":
    call(reproduction)
