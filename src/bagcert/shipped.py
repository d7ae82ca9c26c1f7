"""The weights that this version ships, by their SHA-256.

A model's card names the digest of its weights, but whoever swaps the weights can write a card to match. This table is
code: it is reviewed, and the digest of the wheel covers it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError

WEIGHTS_SHA256 = {
    "cifar10": "f0aea7435400f9cc151c588f868d8997a83f95b4d2dd4843172e71c3d3df49cb",
    "cifar10-distilled": "086182ad29cd4506b512130b374047c54c28f7dfd8a5aab6a96eaccac4f5a868",
    "cifar10-small": "406eab1a94d8eb79ab60c97ee8109576366d47666036eace8a5b596d07864c2a",
    "cifar10-votes": "22e2a5cbb47dbbc53ff327daf822acace1579f08418669328a2610f5673cc671",
}


def check_shipped(folder: Path, card: Mapping[str, Any]) -> None:
    """Refuse a shipped model whose card, and so whose weights, are not those of this version."""
    if card["weights_sha256"] != WEIGHTS_SHA256.get(folder.name):
        raise UsageError(f"The weights in {folder} are not those that this version ships. Install bagcert again.")
