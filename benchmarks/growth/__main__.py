"""Measure how the cost of rules and network grows with images, classes, grid and patch."""

from benchmarks.growth.command import growth
from studies.common.commands import call

if __name__ == "__main__":
    call(growth)
