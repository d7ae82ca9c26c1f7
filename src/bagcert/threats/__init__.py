"""What an attacker may touch, and which outputs that reaches: patch shapes, footprints, regions, tracing.

A new patch shape is one function and one row in `NOTATIONS`.

May import: errors, program.
"""

from bagcert.threats.footprint import Footprint, Layer
from bagcert.threats.regions import Regions
from bagcert.threats.threat import Placement, RectangleThreat, RegionThreat, Threat, parse_threat

__all__ = ["Footprint", "Layer", "Placement", "RectangleThreat", "RegionThreat", "Regions", "Threat", "parse_threat"]
