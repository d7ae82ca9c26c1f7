"""Measure how much of its model's speed a server keeps under load."""

from benchmarks.serving.command import measure
from studies.common.commands import call

if __name__ == "__main__":
    call(measure)
