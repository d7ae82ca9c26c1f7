"""What an attacker may touch: one rectangle of pixels anywhere in the image, or one of some given sets of pixels."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, isqrt
from typing import ClassVar, NamedTuple

import numpy as np
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


class Threat(ABC):
    """The attacker is white-box and picks, for each image, one placement and every pixel value inside it.

    Either `shapes` says all, and a placement is any rectangle of one of these sizes; or `masks` has the pixels of each
    placement. A threat of two patches at once would be a third form: pairs of placements, whose regions are unions.
    """

    image_size: Size
    shapes: tuple[Size, ...]  # of rectangles; none: look at `masks`
    masks: Tensor | None  # bool [n h w], in the order of `placements`; None: rectangles

    @abstractmethod
    def __str__(self) -> str:
        """The threat as a user writes it."""

    @abstractmethod
    def describe(self) -> str:
        """The threat in words, pixels and share of the image."""

    @abstractmethod
    def placements(self) -> list[Placement]:
        """Where a patch may sit."""

    @property
    def extent(self) -> Size:
        """The largest height and the largest width of a placement."""
        placements = self.placements()
        return max(each.height for each in placements), max(each.width for each in placements)


@dataclass(frozen=True)
class RectangleThreat(Threat):
    """One rectangle of any of these shapes, anywhere inside the image."""

    image_size: Size
    shapes: tuple[Size, ...]
    masks: ClassVar[None] = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        height, width = self.image_size
        for patch_height, patch_width in self.shapes:
            if not (1 <= patch_height <= height and 1 <= patch_width <= width):
                raise UsageError(
                    f"The patch {patch_height}x{patch_width} does not fit into an image of {height}x{width}. "
                    f"Choose one from 1x1 to {height}x{width}."
                )

    def __str__(self) -> str:
        return "+".join(f"{height}x{width}" for height, width in self.shapes)

    def describe(self) -> str:
        pixels = self.image_size[0] * self.image_size[1]
        shares = (f"{h}x{w} pixels ({100 * h * w / pixels:.2f} %)" for h, w in self.shapes)
        return f"{' or '.join(shares)} of {self.image_size[0]}x{self.image_size[1]}"

    def starts(self, shape: Size) -> Size:
        """How many rows and columns a patch of this shape can start at."""
        return self.image_size[0] - shape[0] + 1, self.image_size[1] - shape[1] + 1

    def placements(self) -> list[Placement]:
        """Every placement of every shape, row by row."""
        return [
            Placement(row, column, *shape)
            for shape in self.shapes
            for row in range(self.starts(shape)[0])
            for column in range(self.starts(shape)[1])
        ]


@dataclass(frozen=True, eq=False)
class RegionThreat(Threat):
    """One of these sets of pixels, of any shape: `masks[n]` is true where set n may be painted."""

    masks: Tensor  # bool [n h w]
    written: str = field(default="", kw_only=True)  # as a user writes it, if there is a notation for it
    image_size: Size = field(init=False)
    shapes: ClassVar[tuple[Size, ...]] = ()  # type: ignore[misc]

    def __post_init__(self) -> None:
        if self.masks.dtype != torch.bool or self.masks.dim() != 3 or 0 in self.masks.shape:
            raise UsageError(
                f"Region masks must be booleans of shape [regions, height, width], but are {self.masks.dtype} "
                f"{list(self.masks.shape)}. Stack one mask per region."
            )
        object.__setattr__(self, "masks", self.masks.clone())  # the caller may change theirs
        object.__setattr__(self, "image_size", (self.masks.shape[1], self.masks.shape[2]))

    def __str__(self) -> str:
        return self.written or f"{len(self.masks)} regions"

    def describe(self) -> str:
        largest = int(self.masks.flatten(1).sum(dim=1).max())
        regions = f"{len(self.masks)} regions of up to {largest} pixels of {self.image_size[0]}x{self.image_size[1]}"
        return f"{self.written}: {regions}" if self.written else regions

    def placements(self) -> list[Placement]:
        """The bounding box of each set."""
        return [bounding_box(mask) for mask in self.masks]


def bounding_box(mask: Tensor) -> Placement:
    """The smallest rectangle around a mask of pixels; an empty one if nothing is set."""
    rows, columns = mask.any(dim=1).nonzero().flatten(), mask.any(dim=0).nonzero().flatten()
    if len(rows) == 0:
        return Placement(0, 0, 0, 0)
    top, left = int(rows[0]), int(columns[0])
    return Placement(top, left, int(rows[-1]) - top + 1, int(columns[-1]) - left + 1)


def parse_threat(patch: "str | Threat | Tensor | np.ndarray", image_size: Size) -> Threat:
    """Read a threat: text in one of the NOTATIONS, boolean masks, or a threat, which is returned unchanged."""
    if isinstance(patch, np.ndarray):
        patch = torch.from_numpy(np.array(patch))
    threat = RegionThreat(patch) if isinstance(patch, Tensor) else patch
    if isinstance(threat, str):
        return read_text(threat, image_size)
    if not isinstance(threat, Threat):
        raise UsageError(
            f"A patch must be text like 5x5, a threat or region masks, but is {patch}. Write height x width."
        )
    if threat.image_size != image_size:
        raise UsageError(
            f"The threat is for images of {threat.image_size[0]}x{threat.image_size[1]}, but these have "
            f"{image_size[0]}x{image_size[1]}. Build it for this image size."
        )
    return threat


def read_text(text: str, image_size: Size) -> Threat:
    """The threat that a text stands for; `5x5+2x12` lets the attacker pick the shape."""
    threats = [read_part(part.strip(), image_size) for part in text.split("+")]
    if len(threats) == 1:
        return threats[0]
    if not all(threat.shapes for threat in threats):
        raise UsageError(
            f"Only rectangles can be joined by '+', but '{shortened(text)}' has others. Evaluate each on its own."
        )
    return RectangleThreat(image_size, tuple(dict.fromkeys(shape for threat in threats for shape in threat.shapes)))


def read_part(text: str, image_size: Size) -> Threat:
    for notation in NOTATIONS.values():
        if match := re.fullmatch(notation.pattern, text):
            return notation.read(match, image_size)
    raise UsageError(
        f"Cannot read the patch '{shortened(text)}'. Write it like {', '.join(NOTATIONS)} or 5x5+2x12 (height x width)."
    )


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_rectangle(text: re.Match[str], image_size: Size) -> Threat:
    """`5x5`: height x width in pixels."""
    return RectangleThreat(image_size, ((int(text[1]), int(text[2])),))


def read_share(text: re.Match[str], image_size: Size) -> Threat:
    """`2.4%`: the smallest square of at least that share of the image (of 32x32: 5x5)."""
    target = Fraction(text[1]) / 100 * image_size[0] * image_size[1]
    side = isqrt(max(ceil(target) - 1, 0)) + 1  # the smallest side whose square is at least that
    return RectangleThreat(image_size, ((side, side),))


def read_area(text: re.Match[str], image_size: Size) -> Threat:
    """`area:24`: every rectangle of 24 pixels that fits."""
    (height, width), area = image_size, int(text[1])
    shapes = [(h, area // h) for h in range(1, height + 1) if area % h == 0 and area // h <= width] if area else []
    if not shapes:
        raise UsageError(f"No rectangle inside {height}x{width} has an area of {area}. Choose another area.")
    return RectangleThreat(image_size, tuple(shapes))


class Notation(NamedTuple):
    """How a patch shape is written, and the threat it stands for."""

    pattern: str
    read: Callable[[re.Match[str], Size], Threat]


# By an example, as errors show it.
NOTATIONS = {
    "5x5": Notation(r"(\d{1,9})\s*x\s*(\d{1,9})", read_rectangle),
    "2.4%": Notation(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*%", read_share),
    "area:24": Notation(r"area:(\d{1,9})", read_area),
}
