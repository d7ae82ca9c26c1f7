"""The scores that each placement reaches, as sets of positions: arbitrary sets, or products of rows and columns."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bagcert.threats.threat import Placement, Size


class Regions(ABC):
    """n sets of outputs on one grid, each with the placement of the patch that reaches it."""

    grid: Size
    placements: Tensor  # int64 [n 4]: row, column, height, width in pixels
    count: int  # of regions that an attacker takes at once, overlapping or not
    families: "tuple[Family, ...]" = ()  # of products of rows and columns; none: sets of any form

    def __len__(self) -> int:
        return len(self.placements)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} on a grid of {self.grid[0]}x{self.grid[1]})"

    def placement(self, index: int) -> Placement:
        return Placement(*self.placements[index].tolist())

    @property
    @abstractmethod
    def sizes(self) -> Tensor:
        """How many outputs each region holds, int64 [n]."""

    @abstractmethod
    def sums(self, maps: Tensor) -> Tensor:
        """Exact sums of integer maps [... i j] over each region: [... n]."""

    @abstractmethod
    def masks(self, index: Tensor | None = None) -> Tensor:
        """Regions, all or the chosen ones, as bool [n i j]."""

    @abstractmethod
    def maximal(self) -> "Regions":
        """The regions that lie inside no other region, each once.

        Every region lies inside a maximal one, and a union of several inside a union of maximal ones. So a statement
        that gets harder as what is reached grows need only be checked for the maximal ones.
        """

    @abstractmethod
    def to(self, device: torch.device) -> "Regions":
        """The same regions with their tables on a device; `self` if they are there already."""

    @property
    def extent(self) -> Size:
        """The smallest rectangle of outputs, height and width, that holds any of the regions."""
        parts = [(family.rows, family.columns) for family in self.families]
        if not parts:
            masks = self.masks()
            parts = [(masks.any(dim=2), masks.any(dim=1))]
        reached = [(rows, columns) for rows, columns in parts if rows.any() and columns.any()]
        heights, widths = [longest(rows) for rows, _ in reached], [longest(columns) for _, columns in reached]
        return max(heights, default=0), max(widths, default=0)


@dataclass(frozen=True, eq=False, repr=False)
class MaskRegions(Regions):
    """Regions of any shape, one mask each."""

    table: Tensor  # bool [n i j]
    placements: Tensor
    count: int = 1

    @property
    def grid(self) -> Size:  # type: ignore[override]
        return self.table.shape[1], self.table.shape[2]

    @cached_property
    def sizes(self) -> Tensor:
        return self.table.flatten(1).sum(dim=1)

    def sums(self, maps: Tensor) -> Tensor:
        # Integers in float64 add up exactly, in any order, if every partial sum stays below 2**53, which read_scores
        # ensures. Not every device has an integer matrix product.
        return (maps.flatten(-2).double() @ self.table.flatten(1).T.double()).to(maps.dtype)

    def masks(self, index: Tensor | None = None) -> Tensor:
        return self.table.clone() if index is None else self.table[index]

    def maximal(self) -> "MaskRegions":
        # Thousands of placements often reach few different sets; to compare each with each takes their square.
        _, which = torch.unique(self.table.flatten(1), dim=0, return_inverse=True)
        first = torch.full_like(which, len(which)).scatter_reduce(0, which, torch.arange(len(which)).to(which), "amin")
        different = first[: int(which.max()) + 1].sort().values
        kept = different[maximal_sets(self.table.flatten(1)[different])]
        return MaskRegions(self.table[kept], self.placements[kept], self.count)

    def to(self, device: torch.device) -> "MaskRegions":
        if self.table.device == device:
            return self
        return MaskRegions(self.table.to(device), self.placements.to(device), self.count)


def subsets(sets: Tensor, others: Tensor) -> Tensor:
    """Bool [sets, others]: does each set lie inside each of the others?"""
    return sets.float() @ (~others).float().T == 0


def equals(sets: Tensor, others: Tensor) -> Tensor:
    return subsets(sets, others) & subsets(others, sets).T


def maximal_sets(sets: Tensor) -> Tensor:
    """Indices of the sets that lie inside no other set; the first of equal sets."""
    inside = subsets(sets, sets)
    earlier = torch.ones_like(inside).tril(-1)
    beaten = inside & (~inside.T | earlier)
    return (~beaten.any(dim=1)).nonzero().flatten()


def longest(sets: Tensor) -> int:
    """The most positions from the first to the last member of one of the sets, bool [sets, positions]."""
    places = torch.arange(sets.shape[1], device=sets.device)
    last = torch.where(sets, places, 0).amax(dim=1)
    first = torch.where(sets, places, sets.shape[1]).amin(dim=1)
    return int((last - first + 1).clamp(min=0).max())


CACHED_CELLS = 2**18


def joined(tensors: list[Tensor], dim: int) -> Tensor:
    """All tensors in one; a single tensor unchanged, which `torch.cat` would copy."""
    return torch.cat(tensors, dim) if len(tensors) > 1 else tensors[0]


@dataclass(frozen=True, eq=False)
class Intervals:
    """Sets of positions along one axis, each as the same number of half-open intervals (empty ones fill up).

    A window clipped at a border is one interval, a wrapped window two, a dilated one as many as it has taps.
    """

    starts: Tensor  # int64 [sets, pieces]
    stops: Tensor

    @staticmethod
    def of(members: Tensor) -> "Intervals":
        """The intervals of bool [sets, positions]."""
        edges = torch.nn.functional.pad(members.to(torch.int8), (1, 1)).diff(dim=1)  # +1 where one starts, -1 after it
        pieces = max(1, int((edges == 1).sum(dim=1).max()))

        def nth(edge: Tensor) -> Tensor:
            order = edge.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :pieces]
            return torch.where(edge.gather(1, order), order, 0)  # missing pieces become the empty interval [0, 0)

        return Intervals(nth(edges == 1), nth(edges == -1))

    def sums(self, maps: Tensor, dim: int) -> Tensor:
        """Sums along an axis over each set, by running totals: exact for integers."""
        totals = maps.cumsum(dim=dim, dtype=maps.dtype)
        totals = torch.cat([torch.zeros_like(totals.narrow(dim, 0, 1)), totals], dim=dim)
        inside = totals.index_select(dim, self.stops[:, 0]) - totals.index_select(dim, self.starts[:, 0])
        for piece in range(1, self.starts.shape[1]):
            inside += totals.index_select(dim, self.stops[:, piece])
            inside -= totals.index_select(dim, self.starts[:, piece])
        return inside

    def to(self, device: torch.device) -> "Intervals":
        return Intervals(self.starts.to(device), self.stops.to(device))


@dataclass(frozen=True, eq=False)
class Family:
    """Regions that are products: sets of rows times sets of columns, of which `kept` names the ones in use."""

    rows: Tensor  # bool [p i]
    columns: Tensor  # bool [q j]
    placements: Tensor  # int64 [p * q, 4]
    kept: Tensor  # int64 [n], into the p * q products, ascending

    @staticmethod
    def product(rows: Tensor, columns: Tensor, shape: Size, start: Size = (0, 0)) -> "Family":
        """Every set of rows times every set of columns; set number r belongs to a patch at pixel r after the start."""
        starts = (torch.arange(first, first + len(sets)) for first, sets in zip(start, (rows, columns), strict=True))
        start_rows, start_columns = torch.meshgrid(*starts, indexing="ij")
        sizes = torch.tensor(shape).expand(start_rows.numel(), 2)
        placements = torch.cat([torch.stack([start_rows.flatten(), start_columns.flatten()], dim=1), sizes], dim=1)
        return Family(rows, columns, placements, torch.arange(len(placements)))

    @cached_property
    def intervals(self) -> tuple[Intervals, Intervals]:
        device = self.kept.device
        return Intervals.of(self.rows.cpu()).to(device), Intervals.of(self.columns.cpu()).to(device)

    @property
    def whole(self) -> bool:
        return len(self.kept) == len(self.rows) * len(self.columns)

    def sums(self, maps: Tensor) -> Tensor:
        rows, columns = self.intervals
        inside = columns.sums(rows.sums(maps, dim=1), dim=2).flatten(1)
        return inside if self.whole else inside.index_select(1, self.kept)

    def masks(self, index: Tensor) -> Tensor:
        product = self.kept[index]
        width = len(self.columns)
        return self.rows[product // width][:, :, None] & self.columns[product % width][:, None, :]

    def maximal(self) -> "Family":
        """Maximal sets of rows times maximal sets of columns: a product lies inside another if both factors do."""
        if not self.whole:
            return self  # only `outside` removes regions, after this step
        if not (self.rows.any() and self.columns.any()):
            return self.select(self.kept[:1])  # nothing is reached from anywhere
        keep_rows, keep_columns = maximal_sets(self.rows), maximal_sets(self.columns)
        places = (keep_rows[:, None] * len(self.columns) + keep_columns).flatten()
        return Family(
            self.rows[keep_rows],
            self.columns[keep_columns],
            self.placements[places],
            torch.arange(len(places), device=places.device),
        )

    def outside(self, other: "Family", strictly: bool) -> "Family":
        """Without the regions that lie inside one of the other family (equal ones stay if `strictly`)."""
        kept = torch.zeros(len(other.rows) * len(other.columns))
        kept[other.kept] = 1
        kept = kept.view(len(other.rows), len(other.columns))

        def count(rows: Tensor, columns: Tensor) -> Tensor:  # kept regions of `other` that relate to each of ours
            return (rows.float() @ kept @ columns.float().T).flatten()

        around = count(subsets(self.rows, other.rows), subsets(self.columns, other.columns))
        if strictly:
            around = around - count(equals(self.rows, other.rows), equals(self.columns, other.columns))
        return self.select(self.kept[around[self.kept] == 0])

    def select(self, kept: Tensor) -> "Family":
        return Family(self.rows, self.columns, self.placements, kept)

    def to(self, device: torch.device) -> "Family":
        return Family(*(table.to(device) for table in (self.rows, self.columns, self.placements, self.kept)))


@dataclass(frozen=True, eq=False, repr=False)
class SeparableRegions(Regions):
    """Regions that are products of rows and columns, one family for each patch shape."""

    families: tuple[Family, ...]
    count: int = 1

    @property
    def grid(self) -> Size:  # type: ignore[override]
        return self.families[0].rows.shape[1], self.families[0].columns.shape[1]

    @cached_property
    def placements(self) -> Tensor:  # type: ignore[override]
        return torch.cat([family.placements[family.kept] for family in self.families])

    @cached_property
    def sizes(self) -> Tensor:
        each = [family.rows.sum(1)[:, None] * family.columns.sum(1) for family in self.families]
        return torch.cat([sizes.flatten()[family.kept] for sizes, family in zip(each, self.families, strict=True)])

    def sums(self, maps: Tensor) -> Tensor:
        flat = maps.flatten(0, -3)
        # On a CPU piece by piece, so that running totals stay in its cache, which maps of many classes exceed.
        size = CACHED_CELLS // max(len(self), self.grid[0] * self.grid[1]) if maps.is_cpu else len(flat)
        parts = flat.split(max(1, size))  # type: ignore[no-untyped-call]
        sums = [joined([family.sums(part) for family in self.families], dim=1) for part in parts]
        return joined(sums, dim=0).view(*maps.shape[:-2], len(self))

    def masks(self, index: Tensor | None = None) -> Tensor:
        if index is None:
            return torch.cat([family.masks(torch.arange(len(family.kept))) for family in self.families])
        masks = torch.empty(len(index), *self.grid, dtype=torch.bool, device=index.device)
        first = 0
        for family in self.families:
            mine = (index >= first) & (index < first + len(family.kept))
            masks[mine] = family.masks(index[mine] - first)
            first += len(family.kept)
        return masks

    def maximal(self) -> "SeparableRegions":
        families = [family.maximal() for family in self.families]
        for mine in range(len(families)):
            for other in range(len(families)):
                if mine != other:  # the earlier family keeps equal regions
                    families[mine] = families[mine].outside(families[other], strictly=mine < other)
        return SeparableRegions(tuple(family for family in families if len(family.kept)), self.count)

    def to(self, device: torch.device) -> "SeparableRegions":
        if self.families[0].kept.device == device:
            return self
        return SeparableRegions(tuple(family.to(device) for family in self.families), self.count)
