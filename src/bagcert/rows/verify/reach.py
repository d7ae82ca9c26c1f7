"""Which outputs each patch can reach, worked out pixel by pixel from the layers that a rows file names."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagcert.errors import UsageError

Floats = NDArray[np.float64]  # whole numbers below 2**53, so every sum is exact
Flags = NDArray[np.bool_]
Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Reach:
    """n sets of outputs, each a set of rows times a set of columns."""

    rows: Flags  # [p i], the different sets of rows
    columns: Flags  # [q j]
    row: Numbers  # [n], which set of rows each has
    column: Numbers

    def inside(self, maps: Floats) -> Floats:
        """Sums of maps [... i j] over each set: [... n]."""
        by_column = np.tensordot(maps, self.columns.astype(np.float64), axes=([-1], [1]))  # ... i q
        both = np.tensordot(by_column, self.rows.astype(np.float64), axes=([-2], [1]))  # ... q p
        return both[..., self.column, self.row]

    def masks(self) -> Flags:
        """Bool [n i j]."""
        return self.rows[self.row][:, :, None] & self.columns[self.column][:, None, :]

    def sizes(self) -> Numbers:
        sizes: Numbers = self.rows.sum(axis=1)[self.row] * self.columns.sum(axis=1)[self.column]
        return sizes

    def within(self, other: "Reach") -> Flags:
        """Bool [n, n of other]: does each set lie inside each other one?"""
        rows, columns = contained(self.rows, other.rows), contained(self.columns, other.columns)
        return rows[self.row][:, other.row] & columns[self.column][:, other.column]


def contained(sets: Flags, others: Flags) -> Flags:
    """Bool [sets, others]: does each set lie inside each other one?"""
    return np.array([(~members | others).all(axis=1) for members in sets])


def maximal_reach(footprint: dict[str, Any], patch: str) -> Reach:
    """What each placement of the patch can reach, without those inside another one."""
    height, width = footprint["image_size"]
    made = [key for key in REACHES if key in footprint]
    if not made:
        raise UsageError(
            f"The footprint in the rows names neither {' nor '.join(REACHES)}. Return one from the network's reach()."
        )
    seen_rows, seen_columns = (
        REACHES[made[0]](footprint[made[0]], axis, footprint["image_size"][axis]) for axis in (0, 1)
    )
    if [len(seen_rows), len(seen_columns)] != footprint["grid"]:
        raise UsageError(
            f"The footprint in the rows has a grid of {footprint['grid']}, but its '{made[0]}' give "
            f"{[len(seen_rows), len(seen_columns)]}. Certify again."
        )
    found = set()
    for patch_height, patch_width in patch_shapes(patch, height, width):
        for top in range(height - patch_height + 1):
            rows = touched(seen_rows, top, patch_height)
            for left in range(width - patch_width + 1):
                columns = touched(seen_columns, left, patch_width)
                found.add((rows, columns) if rows and columns else (frozenset[int](), frozenset[int]()))
    reach = numbered(sorted(found, key=lambda pair: (sorted(pair[0]), sorted(pair[1]))), footprint["grid"])
    inside = reach.within(reach)
    np.fill_diagonal(inside, False)  # all are different, so no two lie inside each other
    keep = ~inside.any(axis=1)
    return Reach(reach.rows, reach.columns, reach.row[keep], reach.column[keep])


def blind_views(footprint: dict[str, Any], patch: str) -> Flags:
    """Bool [n i j]: which views see no pixel of each placement of the patch.

    View (i, j) is shown all but the pixels in run i of rows and run j of columns; one more row of views is shown all.
    """
    height, width = footprint["image_size"]
    rows, columns = (
        [set(range(start, start + length)) for start, length in footprint["hidden"][axis]]
        for axis in ("rows", "columns")
    )
    if [len(rows) + 1, len(columns)] != footprint["grid"]:
        raise UsageError(
            f"The footprint in the rows has a grid of {footprint['grid']}, but its views give "
            f"{[len(rows) + 1, len(columns)]}. Certify again."
        )
    found = []
    for patch_height, patch_width in patch_shapes(patch, height, width):
        for top in range(height - patch_height + 1):
            over = [set(range(top, top + patch_height)) <= run for run in rows]
            for left in range(width - patch_width + 1):
                beside = [set(range(left, left + patch_width)) <= run for run in columns]
                found.append([*([one and two for two in beside] for one in over), [False] * len(columns)])
    return np.array(found, dtype=bool)


def seen_pixels(layers: Sequence[dict[str, list[int]]], axis: int, pixels: int) -> list[set[int]]:
    """The pixels along one axis that each output sees."""
    seen = [{pixel} for pixel in range(pixels)]
    for layer in layers:
        kernel, stride, dilation, padding = (layer[key][axis] for key in ("kernel", "stride", "dilation", "padding"))
        outputs = (len(seen) + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        after = []
        for output in range(outputs):
            taps = (output * stride - padding + tap * dilation for tap in range(kernel))
            after.append(set[int]().union(*(seen[tap] for tap in taps if 0 <= tap < len(seen))))
        seen = after
    return seen


def field_of(footprint: dict[str, Any]) -> list[int]:
    """The most rows and columns of the image that an output sees through its layers."""
    sides = enumerate(footprint["image_size"])
    return [max(map(len, seen_pixels(footprint["layers"], axis, pixels))) for axis, pixels in sides]


def kept_pixels(kept: Sequence[int], axis: int, pixels: int) -> list[set[int]]:
    """The pixels along one axis that each ablation keeps, wrapping around; a single ablation if it keeps them all."""
    starts = range(pixels if kept[axis] < pixels else 1)
    return [{(start + step) % pixels for step in range(kept[axis])} for start in starts]


# By what makes the footprint in the rows: the pixels along one axis that each output sees.
REACHES: dict[str, Callable[[Any, int, int], list[set[int]]]] = {"layers": seen_pixels, "kept": kept_pixels}


def touched(seen: list[set[int]], start: int, length: int) -> frozenset[int]:
    """The outputs that see any pixel of the patch."""
    patch = set(range(start, start + length))
    return frozenset(output for output, pixels in enumerate(seen) if pixels & patch)


def patch_shapes(patch: str, height: int, width: int) -> list[tuple[int, int]]:
    """The rectangles a written patch stands for: `5x5`, `2.4%`, `5x5+2x12`, `area:24`."""
    shapes: list[tuple[int, int]] = []
    for part in patch.replace(" ", "").split("+"):
        if match := re.fullmatch(r"(\d+)x(\d+)", part):
            shapes.append((int(match[1]), int(match[2])))
        elif match := re.fullmatch(r"(\d*\.?\d+)%", part):
            pixels = math.ceil(Fraction(match[1]) * height * width / 100)
            side = math.isqrt(max(pixels - 1, 0)) + 1
            shapes.append((side, side))
        elif match := re.fullmatch(r"area:(\d+)", part):
            area = int(match[1])
            shapes += [(h, area // h) for h in range(1, height + 1) if area % h == 0 and area // h <= width]
        else:
            raise UsageError(
                f"Cannot read the patch '{patch}' in the rows. Only rectangles, like 5x5, can be verified."
            )
    return shapes


def numbered(found: list[tuple[frozenset[int], frozenset[int]]], grid: list[int]) -> Reach:
    """Pairs of sets as tables of the different sets, and numbers into them."""
    tables, numbers = [], []
    for axis in (0, 1):
        distinct = sorted({pair[axis] for pair in found}, key=sorted)
        tables.append(np.array([[place in members for place in range(grid[axis])] for members in distinct]))
        place = {members: number for number, members in enumerate(distinct)}
        numbers.append(np.array([place[pair[axis]] for pair in found], dtype=np.int64))
    return Reach(tables[0], tables[1], numbers[0], numbers[1])
