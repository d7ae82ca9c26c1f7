"""A class for every position: how many right ones survive any patch.

Inference. The class of a position is the one with the largest score there, the lowest index on ties. Nothing is summed.

Certificate. Of an image with r right positions, r_l of them in R(l), at least

    r - max_l r_l

are right whatever the patch.

Proof. A patch at l changes scores in R(l) and no others. So every right position outside R(l) stays right, and these
are r - r_l. The bound is reached if the attacker can choose the scores in R(l): then all of R(l) is wrong.

Of K patches at once, each takes at most max_l r_l. With a guard band, only those positions count as right whose class
is right by every score in the band.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.scores import IntegerScores
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class Segmentation:
    """For each image: the class of each position, which of them are right, and how many of those survive."""

    predicted: Tensor  # int64 [b i j]
    right: Tensor  # bool [b i j]
    surviving: Tensor  # int64 [b]: at least so many positions are right, whatever the patch
    weakest_region: Tensor  # int64 [b 4]: where a patch can make most of them wrong; row, column, height, width

    def __len__(self) -> int:
        return len(self.predicted)

    def __repr__(self) -> str:
        right, surviving = int(self.right.sum()), int(self.surviving.sum())
        counts = f"{right} right, {surviving} under any patch"
        return f"Segmentation({len(self)} images, of {self.right.numel()} positions {counts})"


@torch.no_grad()
def segment(scores: IntegerScores, labels: Tensor, regions: Regions) -> Segmentation:
    """The classes of images [b k i j] and what survives, given the true class of each position, [b i j]."""
    images, classes, rows, columns = scores.values.shape
    whole = not (labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool)
    if labels.shape != (images, rows, columns) or not whole:
        raise UsageError(
            f"Give the class of each position as whole numbers of shape {[images, rows, columns]}, but these are "
            f"{labels.dtype} {list(labels.shape)}."
        )
    truth = labels.to(scores.values.device, torch.int64)
    if truth.numel() and not 0 <= int(truth.min()) <= int(truth.max()) < classes:
        raise UsageError(f"Classes must lie in 0..{classes - 1}, but some do not. Number them from 0.")
    regions = regions.to(scores.values.device)
    predicted = scores.values.argmax(dim=1)
    right = predicted == truth
    if scores.guarded:
        own = torch.zeros_like(scores.high, dtype=torch.bool).scatter(1, truth[:, None], True)
        others = scores.high.masked_fill(own, torch.iinfo(scores.high.dtype).min).amax(dim=1)
        right = scores.low.gather(1, truth[:, None])[:, 0] > others  # and so it is predicted, too
    lost, place = regions.sums(right.to(torch.int64)).max(dim=1)
    surviving = (right.flatten(1).sum(dim=1) - regions.count * lost).clamp(min=0)
    return Segmentation(predicted, right, surviving, regions.placements[place])
