"""Certify the shipped models against every patch, and attack them."""

from studies.common.commands import call
from studies.shipped.command import bounds, shapes

if __name__ == "__main__":
    call(shapes, bounds)
