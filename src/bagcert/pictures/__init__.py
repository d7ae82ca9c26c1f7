"""Pictures of any size and kind: how they become the network's input, and what a proof says in their own pixels.

May import: config, errors, threats.
"""

from bagcert.pictures.framing import Framing
from bagcert.pictures.own_pixels import OwnPixels
from bagcert.pictures.reading import Pixels

__all__ = ["Framing", "OwnPixels", "Pixels"]
