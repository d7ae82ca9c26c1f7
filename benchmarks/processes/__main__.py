"""Measure what is lost when two processes share the work of one, and the processor time to the first row."""

from benchmarks.processes.command import main
from studies.common.commands import call

if __name__ == "__main__":
    call(main)
