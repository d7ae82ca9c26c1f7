"""Measure what share of the device's arithmetic and bandwidth network and rule use."""

from benchmarks.roofline.command import roofline
from studies.common.commands import call

if __name__ == "__main__":
    call(roofline)
