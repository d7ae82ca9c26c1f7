"""`python -m studies`: one command per study, each from stored rows."""

from benchmarks.calling import call
from studies.figures.command import figures
from studies.rivals.command import compare

if __name__ == "__main__":
    call(figures, compare)
