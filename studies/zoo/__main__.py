"""The shipped models side by side: what they prove, and what they cost."""

from studies.common.commands import call
from studies.zoo.command import measure, page

if __name__ == "__main__":
    call(measure, page)
