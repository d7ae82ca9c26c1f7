"""Which outputs each patch can reach, worked out pixel by pixel from the layers that a rows file names."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from bagcert.errors import UsageError
from bagcert.rows.verify.painted import Flags, Masks, Painted, patches_at_once, placements
from bagcert.rows.verify.room import MOST_OUTPUTS, SET, Room, need_cells, too_large

Floats = NDArray[np.float64]  # whole numbers below 2**53, so every sum is exact
Numbers = NDArray[np.int64]
NONE: Masks = {}


class Reach(ABC):
    """n sets of outputs, of which an attacker reaches `count` at once."""

    count: int

    @abstractmethod
    def inside(self, maps: Floats) -> Floats:
        """Sums of maps [... i j] over each set: [... n]."""

    @abstractmethod
    def masks(self) -> Flags:
        """Bool [n i j]."""

    @abstractmethod
    def sizes(self) -> Numbers: ...

    @abstractmethod
    def select(self, kept: Flags) -> "Reach": ...

    def within(self, other: "Reach") -> Flags:
        """Bool [n, n of other]: does each set lie inside each other one?"""
        mine, others = (each.masks().reshape(len(each.sizes()), -1) for each in (self, other))
        return contained(mine, others)


@final
@dataclass(frozen=True, eq=False)
class SetReach(Reach):
    """Sets of any form."""

    sets: Flags  # [n i j]
    count: int = 1

    def inside(self, maps: Floats) -> Floats:
        sums: Floats = np.tensordot(maps, self.sets.astype(np.float64), axes=([-2, -1], [1, 2]))
        return sums

    def masks(self) -> Flags:
        return self.sets

    def sizes(self) -> Numbers:
        sizes: Numbers = self.sets.sum(axis=(1, 2))
        return sizes

    def select(self, kept: Flags) -> "SetReach":
        return SetReach(self.sets[kept], self.count)


@final
@dataclass(frozen=True, eq=False)
class ProductReach(Reach):
    """Each a set of rows times a set of columns."""

    rows: Flags  # [p i], the different sets of rows
    columns: Flags  # [q j]
    row: Numbers  # [n], which set of rows each has
    column: Numbers
    count: int = 1

    def inside(self, maps: Floats) -> Floats:
        by_column = np.tensordot(maps, self.columns.astype(np.float64), axes=([-1], [1]))  # ... i q
        both = np.tensordot(by_column, self.rows.astype(np.float64), axes=([-2], [1]))  # ... q p
        return both[..., self.column, self.row]

    def masks(self) -> Flags:
        need_cells(len(self.row), self.rows.shape[1], self.columns.shape[1])
        return self.rows[self.row][:, :, None] & self.columns[self.column][:, None, :]

    def sizes(self) -> Numbers:
        sizes: Numbers = self.rows.sum(axis=1)[self.row] * self.columns.sum(axis=1)[self.column]
        return sizes

    def select(self, kept: Flags) -> "ProductReach":
        return ProductReach(self.rows, self.columns, self.row[kept], self.column[kept], self.count)

    def within(self, other: Reach) -> Flags:
        if not isinstance(other, ProductReach):
            return super().within(other)
        rows, columns = contained(self.rows, other.rows), contained(self.columns, other.columns)
        return rows[self.row][:, other.row] & columns[self.column][:, other.column]


def contained(sets: Flags, others: Flags) -> Flags:
    """Bool [sets, others]: does each set lie inside each other one?"""
    return np.array([(~members | others).all(axis=1) for members in sets])


def maximal_reach(footprint: dict[str, Any], patch: str, masks: Masks = NONE) -> Reach:
    """What each placement of the patch can reach, without those inside another one."""
    height, width = footprint["image_size"]
    count = patches_at_once(patch)[0]
    if "hidden" in footprint:  # a view is reached unless it is blind to the whole placement
        return largest(SetReach(np.unique(~blind_views(footprint, patch, masks), axis=0), count))
    maps = seen_by_maps(footprint)
    painted = placements(patch, height, width, masks)
    if len(maps) > 1 or any(each.pixels is not None for each in painted):
        need_cells(len(painted), *footprint["grid"])
        # Several maps have their rows in turn: the first rows of all, then their second rows.
        sets = [np.stack([reached_set(each, *seen) for seen in maps], axis=1) for each in painted]
        reach: Reach = SetReach(np.unique(np.array(sets).reshape(len(sets), *footprint["grid"]), axis=0), count)
    else:
        ((seen_rows, seen_columns),) = maps
        found, room = set(), Room()
        for each in painted:
            rows, columns = touched(seen_rows, each.rows), touched(seen_columns, each.columns)
            room.take(2 * SET + len(rows) + len(columns))
            found.add((rows, columns) if rows and columns else (frozenset[int](), frozenset[int]()))
        ordered = sorted(found, key=lambda pair: (sorted(pair[0]), sorted(pair[1])))
        reach = replace(numbered(ordered, footprint["grid"]), count=count)
    return largest(reach)


def largest(reach: Reach) -> Reach:
    """Those of different sets that lie inside no other one."""
    need_cells(len(reach.sizes()), len(reach.sizes()))
    inside = reach.within(reach)
    np.fill_diagonal(inside, False)  # all are different, so no two lie inside each other
    return reach.select(np.logical_not(inside.any(axis=1)))


def maps_of(footprint: dict[str, Any]) -> list[dict[str, Any]]:
    """What makes the footprint of each map; most networks have one."""
    return footprint.get("maps") or [footprint]


def tables_of(footprint: dict[str, Any]) -> list[str]:
    """The names of what makes it; none of views, which see what they do not hide."""
    return [key for key in REACHES if any(key in each for each in maps_of(footprint))]


def seen_by_maps(footprint: dict[str, Any]) -> list[tuple[list[set[int]], list[set[int]]]]:
    """The pixels that each output of each map sees, along rows and along columns."""
    found, room = [], Room()
    for part in maps_of(footprint):
        rows, columns = seen_along(part, footprint)
        room.take(sum(map(len, rows)) + sum(map(len, columns)))
        found.append((rows, columns))
    return found


def seen_along(part: dict[str, Any], footprint: dict[str, Any]) -> tuple[list[set[int]], list[set[int]]]:
    """The pixels that each output of one map sees, along rows and along columns."""
    made = [key for key in REACHES if key in part]
    if not made:
        raise UsageError(
            f"The footprint in the rows names neither {' nor '.join(REACHES)}. Return one from the network's reach()."
        )
    rows, columns = (REACHES[made[0]](part[made[0]], axis, footprint["image_size"][axis]) for axis in (0, 1))
    grid = [len(rows) * len(maps_of(footprint)), len(columns)]
    if grid != footprint["grid"]:
        raise UsageError(
            f"The footprint in the rows has a grid of {footprint['grid']}, but its '{made[0]}' give {grid}. "
            "Certify again."
        )
    return rows, columns


def reached_set(painted: Painted, seen_rows: list[set[int]], seen_columns: list[set[int]]) -> Flags:
    """Bool [i j]: the outputs that see any pixel of a placement of any form."""
    reached = np.zeros((len(seen_rows), len(seen_columns)), dtype=bool)
    pixels = painted.pixels
    for i in touched(seen_rows, painted.rows):
        for j in touched(seen_columns, painted.columns):
            rows, columns = sorted(seen_rows[i] & painted.rows), sorted(seen_columns[j] & painted.columns)
            reached[i, j] = pixels is None or bool(pixels[np.ix_(rows, columns)].any())
    return reached


def blind_views(footprint: dict[str, Any], patch: str, masks: Masks = NONE) -> Flags:
    """Bool [n i j]: which views see no pixel of each placement of the patch.

    View (i, j) is shown all but the pixels in run i of rows and run j of columns, or view (i, 0) all but those of set
    i; one more row of views is shown all.
    """
    height, width = footprint["image_size"]
    painted, hidden = placements(patch, height, width, masks), footprint["hidden"]
    found: list[list[list[bool]]]
    if "sets" in hidden:
        need_cells(len(hidden["sets"]), height, width)
        sets = [listed(each, height * width).reshape(height, width) for each in hidden["sets"]]
        found, across = [[[within_set(each, one)] for one in sets] for each in painted], 1
    else:
        rows, columns = (
            Room().hold(set(range(start, start + length)) for start, length in hidden[axis])
            for axis in ("rows", "columns")
        )
        need_cells(len(painted), len(rows) + 1, len(columns), 8)  # flags in lists take the memory of eight
        over = [[each.rows <= run for run in rows] for each in painted]
        beside = [[each.columns <= run for run in columns] for each in painted]
        found = [[[one and two for two in second] for one in first] for first, second in zip(over, beside, strict=True)]
        across = len(columns)
    blind = np.array([[*views, [False] * across] for views in found], dtype=bool)
    if list(blind.shape[1:]) != footprint["grid"]:
        raise UsageError(
            f"The footprint in the rows has a grid of {footprint['grid']}, but its views give {list(blind.shape[1:])}. "
            "Certify again."
        )
    return blind


def within_set(painted: Painted, pixels: Flags) -> bool:
    """Does a placement lie wholly inside a set of pixels [h w]?"""
    place = np.ix_(sorted(painted.rows), sorted(painted.columns))
    return bool((pixels[place] | (False if painted.pixels is None else ~painted.pixels[place])).all())


def listed(runs: Sequence[Sequence[int]], pixels: int) -> Flags:
    """Bool [pixels]: those in any of the runs of start and length."""
    found = np.zeros(pixels, dtype=bool)
    for start, length in runs:
        found[start : start + length] = True
    return found


def seen_pixels(layers: Sequence[dict[str, list[int]]], axis: int, pixels: int) -> list[set[int]]:
    """The pixels along one axis that each output sees."""
    seen = [{pixel} for pixel in range(pixels)]
    for layer in layers:
        kernel, stride, dilation, padding = (layer[key][axis] for key in ("kernel", "stride", "dilation", "padding"))
        outputs = (len(seen) + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        if outputs > MOST_OUTPUTS:
            raise too_large()
        room, after = Room(), []
        for output in range(outputs):
            room.take(kernel)
            taps = (output * stride - padding + tap * dilation for tap in range(kernel))
            after += room.hold([set[int]().union(*(seen[tap] for tap in taps if 0 <= tap < len(seen)))])
        seen = after
    return seen


def field_of(footprint: dict[str, Any]) -> list[int]:
    """The most rows and columns of the image, from the first to the last, that an output of any map sees."""
    parts = seen_by_maps(footprint)
    return [max(span(seen) for part in parts for seen in part[axis]) for axis in (0, 1)]


def span(pixels: set[int]) -> int:
    """From the first to the last pixel along one axis; 0 if there is none."""
    return max(pixels) - min(pixels) + 1 if pixels else 0


def kept_pixels(kept: Sequence[int], axis: int, pixels: int) -> list[set[int]]:
    """The pixels along one axis that each ablation keeps, wrapping around; a single ablation if it keeps them all."""
    starts = range(pixels if kept[axis] < pixels else 1)
    return Room().hold({(start + step) % pixels for step in range(kept[axis])} for start in starts)


def listed_pixels(pixels: dict[str, list[list[list[int]]]], axis: int, size: int) -> list[set[int]]:
    """The pixels along one axis that each output sees, from runs of start and length."""
    outputs = pixels["columns" if axis else "rows"]
    return Room().hold({start + step for start, length in runs for step in range(length)} for runs in outputs)


# By what makes the footprint in the rows: the pixels along one axis that each output sees.
REACHES: dict[str, Callable[[Any, int, int], list[set[int]]]] = {
    "layers": seen_pixels,
    "pixels": listed_pixels,
    "kept": kept_pixels,
}


def touched(seen: list[set[int]], patch: frozenset[int]) -> frozenset[int]:
    """The outputs that see any of these pixels along one axis."""
    return frozenset(output for output, pixels in enumerate(seen) if pixels & patch)


def numbered(found: list[tuple[frozenset[int], frozenset[int]]], grid: list[int]) -> ProductReach:
    """Pairs of sets as tables of the different sets, and numbers into them."""
    tables, numbers = [], []
    for axis in (0, 1):
        distinct = sorted({pair[axis] for pair in found}, key=sorted)
        tables.append(np.array([[place in members for place in range(grid[axis])] for members in distinct]))
        place = {members: number for number, members in enumerate(distinct)}
        numbers.append(np.array([place[pair[axis]] for pair in found], dtype=np.int64))
    return ProductReach(tables[0], tables[1], numbers[0], numbers[1])
