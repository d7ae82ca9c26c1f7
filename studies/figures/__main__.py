"""Draw the paper's figures from stored rows and shipped models."""

from studies.common.commands import call
from studies.figures.command import figures

if __name__ == "__main__":
    call(figures)
