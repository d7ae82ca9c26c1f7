"""How much a second opinion works out before it refuses: rows come from anywhere, and a short line can ask for much."""

import math
from collections.abc import Iterable

from bagcert.errors import UsageError

MOST_NUMBERS = 2**23  # in sets of pixels or outputs that are held at once
MOST_CELLS = 2**30  # in a table of flags
MOST_OUTPUTS = 2**13  # of a layer along one axis
SET = 8  # a set takes the memory of so many numbers, and one for each that it holds


class Room:
    """For the numbers in sets that are held at once."""

    def __init__(self) -> None:
        self._left = MOST_NUMBERS

    def take(self, numbers: int) -> None:
        """Refuse the rows if no room is left for these numbers."""
        self._left -= numbers
        if self._left < 0:
            raise too_large()

    def hold(self, sets: Iterable[set[int]]) -> list[set[int]]:
        """These sets, made one after the other as long as there is room for them."""
        held = []
        for each in sets:
            self.take(SET + len(each))
            held.append(each)
        return held


def need_cells(*sides: int) -> None:
    """Refuse the rows if a table of flags with these sides is too large."""
    if math.prod(sides) > MOST_CELLS:
        raise too_large()


def too_large() -> UsageError:
    return UsageError(
        "The patch in the rows has too many placements to be verified, or the footprint too many outputs. Copy the "
        "rows again, or certify smaller images."
    )
