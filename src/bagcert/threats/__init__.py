"""What an attacker may touch, and which outputs that reaches: patch shapes, footprints, regions, tracing.

A new patch shape is one function and one row in `NOTATIONS`.

May import: errors, program.
"""

from bagcert.threats.footprint import Footprint, Layer
from bagcert.threats.notation import Patch, parse_threat
from bagcert.threats.regions import Regions
from bagcert.threats.threat import Placement, RectangleThreat, RegionThreat, Threat

__all__ = [
    "Footprint",
    "Layer",
    "Patch",
    "Placement",
    "RectangleThreat",
    "RegionThreat",
    "Regions",
    "Threat",
    "parse_threat",
]
