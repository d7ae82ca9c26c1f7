"""Views that each hide one rectangle of the image, so that every patch of a threat is hidden from one of them."""

import copy
from abc import abstractmethod
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


@dataclass(frozen=True, eq=False)
class Hidden:
    """View (i, j) hides the pixels in `rows[i]` and `columns[j]`; one more row of views hides nothing."""

    rows: Tensor  # bool [i h]
    columns: Tensor  # bool [j w]

    @staticmethod
    def covering(patch: Size, image_size: Size, most: int) -> "Hidden":
        """Rectangles of one size, at most `most` along each axis, such that every placement lies inside one."""
        if patch[0] > image_size[0] or patch[1] > image_size[1]:
            raise UsageError(
                f"The value of network.patch must fit into {image_size[0]}x{image_size[1]} pixels, but is "
                f"{patch[0]}x{patch[1]}. Choose a smaller one."
            )
        return Hidden(*(intervals(side, size, most) for side, size in zip(patch, image_size, strict=True)))

    def __len__(self) -> int:
        """How many views hide something."""
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
        """What the views, numbered row by row, hide: bool [n h w]."""
        rows, columns = self.rows.to(views.device), self.columns.to(views.device)
        row, column = views // len(columns), views % len(columns)
        return rows[row][:, :, None] & columns[column][:, None, :]


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


Patch = Annotated[tuple[int, int], Key("patch to train against, height and width", most=10_000)]


class HidingConfig(NetworkConfig):
    """The config of a network whose views hide rectangles."""

    patch: Patch  # trained against this one; a defense hides the patches of its own threat
    masks: int  # at most, along each axis


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
        return {"hidden": {"rows": runs(self.hidden.rows), "columns": runs(self.hidden.columns)}}

    def hide(self, patch: Size, image_size: Size) -> None:
        """Hide patches of this size from now on."""
        self.hidden = Hidden.covering(patch, image_size, self.config.masks)
        self.footprint = self.hidden.footprint
        self.step = CountStep(self.questions)

    def facing(self, threat: Threat, views: bool = True) -> "HidingScorer":
        faced = copy.copy(self)  # the same layers and weights, other views
        faced.hide(threat.extent, threat.image_size)
        return faced

    def integers(self, images: Images) -> Scores:
        return self.mapped(self.counts(images))

    def mapped(self, counts: Tensor) -> Scores:
        """The scores from the counts [b k views]."""
        whole = counts[:, :, -1:].expand(-1, -1, len(self.hidden.columns))  # the row of views that hide nothing
        views = torch.cat([counts[:, :, :-1], whole], dim=2)
        return self.step.fixed(views.view(*counts.shape[:2], *self.footprint.grid))

    @property
    @abstractmethod
    def questions(self) -> int:
        """How many questions each view decides."""

    @abstractmethod
    def counts(self, images: Images) -> Tensor:
        """How many questions each view decides for each class, [b k views]; the last view hides nothing."""
