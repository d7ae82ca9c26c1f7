"""What an attacker may touch: a rectangle of pixels in the image, one of some given sets, or several such at once."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bagcert.errors import UsageError

Size = tuple[int, int]  # height, width


class Placement(NamedTuple):
    """A rectangle of pixels; for a set of any shape, its bounding box."""

    row: int
    column: int
    height: int
    width: int


class Rectangles(NamedTuple):
    """All rectangles of one shape that start at one of these rows and one of these columns."""

    shape: Size
    rows: range
    columns: range


class Threat(ABC):
    """The attacker is white-box and picks, for each image, `count` placements and every pixel value inside them.

    Either `rectangles` says where one patch may lie, or `masks` has the pixels of each of its placements. Several
    patches may overlap.
    """

    image_size: Size
    shapes: tuple[Size, ...]  # of rectangles, if they may lie anywhere; else none
    rectangles: tuple[Rectangles, ...]  # none: look at `masks`
    masks: Tensor | None  # bool [n h w], in the order of `placements`; None: rectangles
    count: int = 1  # patches at once

    @property
    def one(self) -> "Threat":
        """One patch of this threat alone."""
        return self

    @abstractmethod
    def __str__(self) -> str:
        """The threat as a user writes it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self} of {self.image_size[0]}x{self.image_size[1]})"

    def same(self, other: "Threat") -> bool:
        """Written alike and made of the same sets: several threats may be written '4 sets'."""
        sets = tuple(torch.empty(0) if each.masks is None else each.masks for each in (self, other))
        return (str(self), self.image_size) == (str(other), other.image_size) and torch.equal(*sets)

    @abstractmethod
    def describe(self) -> str:
        """The threat in words, pixels and share of the image."""

    @abstractmethod
    def placements(self) -> list[Placement]:
        """Where one patch may sit."""

    @property
    @abstractmethod
    def number(self) -> int:
        """How many placements there are."""

    @abstractmethod
    def pixels(self) -> Tensor:
        """The pixels of each placement, bool [n h w]."""

    @property
    def extent(self) -> Size:
        """The largest height and the largest width of a placement."""
        placements = self.placements()
        return max(each.height for each in placements), max(each.width for each in placements)


class Area(NamedTuple):
    """A part of the image: its words, and the shares of height and width from which to which it goes."""

    words: str
    rows: tuple[Fraction, Fraction]
    columns: tuple[Fraction, Fraction]


HALF, ALL = Fraction(1, 2), (Fraction(0), Fraction(1))
MIDDLE = (Fraction(1, 4), Fraction(3, 4))
AREAS = {
    "upper": Area("upper half", (Fraction(0), HALF), ALL),
    "lower": Area("lower half", (HALF, Fraction(1)), ALL),
    "left": Area("left half", ALL, (Fraction(0), HALF)),
    "right": Area("right half", ALL, (HALF, Fraction(1))),
    "center": Area("middle half", MIDDLE, MIDDLE),
}


def pixels_of(share: tuple[Fraction, Fraction], size: int) -> range:
    """The pixels along one axis that lie in this share of it, wholly or in part: halves of 7 pixels have 4 each."""
    return range(floor(share[0] * size), ceil(share[1] * size))


def inside_area(area: str, image_size: Size) -> tuple[range, range]:
    """The rows and columns of an area; all of them if it has no name."""
    shares = (AREAS[area].rows, AREAS[area].columns) if area else (ALL, ALL)
    return pixels_of(shares[0], image_size[0]), pixels_of(shares[1], image_size[1])


@dataclass(frozen=True, repr=False)
class RectangleThreat(Threat):
    """One rectangle of any of these sizes, anywhere inside the image or wholly inside one of its AREAS."""

    image_size: Size
    sizes: tuple[Size, ...]
    areas: tuple[str, ...] = ()  # one for each size, "" for the whole image; none: all of them anywhere
    masks: ClassVar[None] = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not any(self.areas):
            object.__setattr__(self, "areas", ("",) * len(self.sizes))
        for size, area in self.choices:
            rows, columns = inside_area(area, self.image_size)
            if not (1 <= size[0] <= len(rows) and 1 <= size[1] <= len(columns)):
                place = f"the {AREAS[area].words}" if area else "an image"
                raise UsageError(
                    f"The patch {size[0]}x{size[1]} does not fit into {place} of {self.image_size[0]}x"
                    f"{self.image_size[1]}. Choose one from 1x1 to {len(rows)}x{len(columns)}."
                )

    @property
    def choices(self) -> tuple[tuple[Size, str], ...]:
        """Each size with its area."""
        return tuple(zip(self.sizes, self.areas, strict=True))

    @property
    def shapes(self) -> tuple[Size, ...]:  # type: ignore[override]
        return () if any(self.areas) else self.sizes

    @property
    def rectangles(self) -> tuple[Rectangles, ...]:  # type: ignore[override]
        found = []
        for (height, width), area in self.choices:
            rows, columns = inside_area(area, self.image_size)
            starts = range(rows.start, rows.stop - height + 1), range(columns.start, columns.stop - width + 1)
            found.append(Rectangles((height, width), *starts))
        return tuple(found)

    def __str__(self) -> str:
        return ",".join(f"{height}x{width}" + (f"@{area}" if area else "") for (height, width), area in self.choices)

    def describe(self) -> str:
        pixels = self.image_size[0] * self.image_size[1]
        words = []
        for (height, width), area in self.choices:
            size = f"{height}x{width} pixels ({100 * height * width / pixels:.2f} %)"
            words.append(f"{size} in the {AREAS[area].words}" if area else size)
        return f"{' or '.join(words)} of {self.image_size[0]}x{self.image_size[1]}"

    def placements(self) -> list[Placement]:
        """Every placement of every size, row by row."""
        return [
            Placement(row, column, *each.shape)
            for each in self.rectangles
            for row in each.rows
            for column in each.columns
        ]

    @property
    def number(self) -> int:
        return sum(len(each.rows) * len(each.columns) for each in self.rectangles)

    def pixels(self) -> Tensor:
        masks = torch.zeros(self.number, *self.image_size, dtype=torch.bool)
        for mask, (row, column, height, width) in zip(masks, self.placements(), strict=True):
            mask[row : row + height, column : column + width] = True
        return masks


@dataclass(frozen=True, eq=False, repr=False)
class RegionThreat(Threat):
    """One of these sets of pixels, of any shape: `masks[n]` is true where set n may be painted."""

    masks: Tensor  # bool [n h w]
    written: str = field(default="", kw_only=True)  # as a user writes it, if there is a notation for it
    image_size: Size = field(init=False)
    shapes: ClassVar[tuple[Size, ...]] = ()  # type: ignore[misc]
    rectangles: ClassVar[tuple[Rectangles, ...]] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.masks.dtype != torch.bool or self.masks.dim() != 3 or 0 in self.masks.shape:
            raise UsageError(
                f"Sets of pixels must be booleans of shape [sets, height, width], but are {self.masks.dtype} "
                f"{list(self.masks.shape)}. Stack one array per set."
            )
        object.__setattr__(self, "masks", self.masks.clone())  # the caller may change theirs
        object.__setattr__(self, "image_size", (self.masks.shape[1], self.masks.shape[2]))

    def __str__(self) -> str:
        return self.written or self._counted

    def describe(self) -> str:
        largest = int(self.masks.flatten(1).sum(dim=1).max())
        sets = f"{self._counted} of up to {largest} pixels of {self.image_size[0]}x{self.image_size[1]}"
        return f"{self.written}: {sets}" if self.written else sets

    @property
    def _counted(self) -> str:
        return f"{len(self.masks)} set{'s' if len(self.masks) > 1 else ''}"

    def placements(self) -> list[Placement]:
        """The bounding box of each set."""
        return [bounding_box(mask) for mask in self.masks]

    @property
    def number(self) -> int:
        return len(self.masks)

    def pixels(self) -> Tensor:
        return self.masks


MOST_PATCHES = 9


@dataclass(frozen=True, repr=False)
class SeveralThreat(Threat):
    """Several patches at once, each of them a patch of one threat, anywhere that it allows; they may overlap."""

    each: Threat
    count: int
    shapes: ClassVar[tuple[Size, ...]] = ()  # type: ignore[misc]  # a single patch is not all that may be painted

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MOST_PATCHES:
            raise UsageError(f"The number of patches must be in 1..{MOST_PATCHES}, but is {self.count}. Write 2*5x5.")

    @property
    def one(self) -> Threat:
        return self.each

    @property
    def image_size(self) -> Size:  # type: ignore[override]
        return self.each.image_size

    @property
    def rectangles(self) -> tuple[Rectangles, ...]:  # type: ignore[override]
        return self.each.rectangles

    @property
    def masks(self) -> Tensor | None:  # type: ignore[override]
        return self.each.masks

    def __str__(self) -> str:
        return f"{self.count}*{self.each}"

    def describe(self) -> str:
        return f"{self.count} patches at once, each {self.each.describe()}"

    def placements(self) -> list[Placement]:
        return self.each.placements()

    @property
    def number(self) -> int:
        return self.each.number

    def pixels(self) -> Tensor:
        return self.each.pixels()


def bounding_box(mask: Tensor) -> Placement:
    """The smallest rectangle around a mask of pixels; an empty one if nothing is set."""
    rows, columns = mask.any(dim=1).nonzero().flatten(), mask.any(dim=0).nonzero().flatten()
    if len(rows) == 0:
        return Placement(0, 0, 0, 0)
    top, left = int(rows[0]), int(columns[0])
    return Placement(top, left, int(rows[-1]) - top + 1, int(columns[-1]) - left + 1)
