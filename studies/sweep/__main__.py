"""Train the paper's sweep and its score functions, for the rows behind the figures."""

from studies.common.commands import call
from studies.sweep.command import sweep

if __name__ == "__main__":
    call(sweep)
