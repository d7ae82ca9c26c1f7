"""Views that each hide a part of the image, so that every patch of a threat is hidden from one of them."""

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.scorers.base import BuiltScorer, NetworkConfig
from bagcert.scorers.steps import CountStep
from bagcert.tensors import Images, Scores
from bagcert.threats import Footprint, Threat
from bagcert.threats.footprint import CPU, Branch
from bagcert.threats.threat import Size


class Hidden(ABC):
    """What each view hides; the last row of views hides nothing."""

    @property
    @abstractmethod
    def footprint(self) -> Footprint:
        """Which views see each pixel."""

    @abstractmethod
    def __len__(self) -> int:
        """How many views hide something."""

    @abstractmethod
    def masks(self, views: Tensor) -> Tensor:
        """What the views, numbered row by row, hide: bool [n h w]."""

    @abstractmethod
    def table(self) -> dict[str, Any]:
        """What they hide, as numbers that rows keep."""


@dataclass(frozen=True, eq=False)
class HiddenRectangles(Hidden):
    """View (i, j) hides the pixels in `rows[i]` and `columns[j]`."""

    rows: Tensor  # bool [i h]
    columns: Tensor  # bool [j w]

    @staticmethod
    def covering(patch: Size, image_size: Size, most: int) -> "HiddenRectangles":
        """Rectangles of one size, at most `most` along each axis, such that every placement lies inside one."""
        if patch[0] > image_size[0] or patch[1] > image_size[1]:
            raise UsageError(
                f"The value of network.patch must fit into {image_size[0]}x{image_size[1]} pixels, but is "
                f"{patch[0]}x{patch[1]}. Choose a smaller one."
            )
        return HiddenRectangles(*(intervals(side, size, most) for side, size in zip(patch, image_size, strict=True)))

    def __len__(self) -> int:
        return len(self.rows) * len(self.columns)

    @property
    def footprint(self) -> Footprint:
        """A view sees a pixel whose row or whose column it does not hide: two branches."""
        rows = torch.cat([~self.rows, torch.ones_like(self.rows[:1])])
        return Footprint(
            (
                Branch(rows, torch.ones_like(self.columns)),
                Branch(torch.ones_like(rows), ~self.columns),
            )
        )

    def masks(self, views: Tensor) -> Tensor:
        rows, columns = self.rows.to(views.device), self.columns.to(views.device)
        row, column = views // len(columns), views % len(columns)
        return rows[row][:, :, None] & columns[column][:, None, :]

    def table(self) -> dict[str, Any]:
        return {"rows": runs(self.rows), "columns": runs(self.columns)}


@dataclass(frozen=True, eq=False)
class HiddenSets(Hidden):
    """View i hides the pixels of `sets[i]`, which may have any form; all views are in one column."""

    sets: Tensor  # bool [n h w]

    def __len__(self) -> int:
        return len(self.sets)

    @property
    def footprint(self) -> Footprint:
        """A branch for each column of pixels, or for several that all sets treat alike; one for the last view."""
        height, width = self.sets.shape[1:]
        nothing = torch.zeros(1, height, dtype=torch.bool, device=CPU)
        different, which = torch.unique(self.sets, dim=2, return_inverse=True)
        branches = [Branch(torch.cat([nothing.expand(len(self), -1), ~nothing]), ~nothing.new_zeros(1, width))]
        for number, hidden in enumerate(different.unbind(dim=2)):
            branches.append(Branch(torch.cat([~hidden, nothing]), (which == number)[None]))
        return Footprint(tuple(branches))

    def masks(self, views: Tensor) -> Tensor:
        return self.sets.to(views.device)[views]

    def table(self) -> dict[str, Any]:
        return {"sets": [runs_of(each.flatten()) for each in self.sets]}

    def need(self, threat: Threat) -> None:
        """Refuse a threat of which some placement lies inside no set."""
        regions = self.footprint.regions(threat)
        open_to = regions.masks()[:, :-1].flatten(1).all(dim=1).nonzero().flatten()
        if len(open_to):
            row, column, height, width = regions.placement(int(open_to[0]))
            raise UsageError(
                f"No mask holds all of the patch of {height}x{width} pixels at row {row}, column {column}, one of "
                f"{len(open_to):,} placements of {threat} that lie inside none. Give masks that hold every placement."
            )


def intervals(patch: int, size: int, most: int) -> Tensor:
    """Bool [n size], n <= most: intervals of one length, such that every run of `patch` pixels lies inside one.

    Started every s pixels, they must be s - 1 longer than the patch (PatchCleanser's masks); the last one ends with the
    image.
    """
    stride = -(-(size - patch + 1) // most)
    length = min(size, patch + stride - 1)
    starts = torch.tensor([*range(0, size - length, stride), size - length], device=CPU)
    pixel = torch.arange(size, device=CPU)
    return (pixel >= starts[:, None]) & (pixel < starts[:, None] + length)


def runs(sets: Tensor) -> list[list[int]]:
    """First pixel and length of runs of pixels, given as flags [n pixels]."""
    return [[int(flags.long().argmax()), int(flags.sum())] for flags in sets]


def flags(found: list[list[int]], size: int) -> Tensor:
    """The inverse of `runs`."""
    pixel = torch.arange(size)
    return torch.stack([(pixel >= start) & (pixel < start + length) for start, length in found])


def runs_of(seen: Tensor) -> list[list[int]]:
    """The runs of true values, each as start and length."""
    edges = torch.nn.functional.pad(seen.to(torch.int8), (1, 1)).diff()
    starts, stops = ((edges == sign).nonzero().flatten().tolist() for sign in (1, -1))
    return [[start, stop - start] for start, stop in zip(starts, stops, strict=True)]


def flags_of(found: list[list[int]], size: int) -> Tensor:
    """The inverse of `runs_of`."""
    none = torch.zeros(size, dtype=torch.bool)
    return torch.cat([none[None], flags(found, size)]).any(dim=0) if found else none


Patch = Annotated[tuple[int, int], Key("patch to train against, height and width", most=10_000)]


class HidingConfig(NetworkConfig):
    """The config of a network whose views hide parts of the image."""

    patch: Patch  # trained against this one; a defense hides the patches of its own threat
    masks: int  # rectangles, at most, along each axis


class HidingScorer(BuiltScorer):
    """A score for each view: how many questions it decides for a class (rule `unanimous`).

    `logits` are cheap and only steer attacks. One size of rectangle serves all shapes of a threat: the largest height
    and the largest width.
    """

    views: ClassVar[bool] = True
    alike: ClassVar[bool] = True  # all patches behind one mask look alike to its view
    config: HidingConfig
    hidden: Hidden

    def reach(self) -> dict[str, Any]:
        return {"hidden": self.hidden.table()}

    def rectangles(self, patch: Size, image_size: Size) -> Hidden:
        """What to hide, so that every patch of this size is hidden from some view."""
        return HiddenRectangles.covering(patch, image_size, self.config.masks)

    def against(self, threat: Threat) -> Hidden:
        """What to hide, so that every placement of the threat is hidden from some view."""
        return self.rectangles(threat.extent, threat.image_size)

    def hide(self, hidden: Hidden) -> None:
        """Hide this from now on."""
        self.hidden = hidden
        self.footprint = hidden.footprint
        self.step = CountStep(self.questions)

    def facing(self, threat: Threat, views: bool = True) -> "HidingScorer":
        faced = copy.copy(self)  # the same layers and weights, other views
        faced.hide(self.against(threat))
        return faced

    def integers(self, images: Images) -> Scores:
        return self.mapped(self.counts(images))

    def mapped(self, counts: Tensor) -> Scores:
        """The scores from the counts [b k views]."""
        whole = counts[:, :, -1:].expand(-1, -1, self.footprint.grid[1])  # the row of views that hide nothing
        views = torch.cat([counts[:, :, :-1], whole], dim=2)
        return self.step.fixed(views.view(*counts.shape[:2], *self.footprint.grid))

    @property
    @abstractmethod
    def questions(self) -> int:
        """How many questions each view decides."""

    @abstractmethod
    def counts(self, images: Images) -> Tensor:
        """How many questions each view decides for each class, [b k views]; the last view hides nothing."""
