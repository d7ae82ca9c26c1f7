"""Certify networks of different receptive fields together, for docs/frontier.md."""

from studies.common.commands import call
from studies.frontier.command import frontier

if __name__ == "__main__":
    call(frontier)
