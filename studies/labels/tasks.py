"""The two tasks on pictures of tiles: how each is trained, certified, counted and attacked."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from bagcert.rules import IntegerScores
from bagcert.rules.labels import LabelCertificate, certify_maps
from bagcert.rules.segmentation import Segmentation, segment
from bagcert.scorers.residual import ResidualConfig
from bagcert.tensors import Scores
from bagcert.threats import Regions
from bagcert.training.losses import box_sums, window_mask
from studies.labels.tiles import SIDE, TILES, Pictures

MARGIN = 1.0  # by which an attack overshoots, in soft scores


class Task(ABC):
    """What is asked about a picture. Counts are of what is wrong, so that less is better."""

    name: ClassVar[str]

    @abstractmethod
    def network(self, classes: int, channels: int, narrow: int, wide: int) -> ResidualConfig:
        """The network that answers it."""

    @abstractmethod
    def loss(self, scores: Scores, pictures: Pictures, window: tuple[int, int]) -> Tensor:
        """The training loss; a patch reaches a window of this size."""

    @abstractmethod
    def settle(self, scores: IntegerScores, pictures: Pictures) -> dict[str, Any]:
        """What is chosen on validation pictures, for the results."""

    @abstractmethod
    def columns(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> dict[str, Tensor]:
        """For each picture: `wrong` as it is, `most_wrong` under any patch, and what else goes into rows."""

    @abstractmethod
    def weakest(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> Tensor:
        """The region where a patch can do most, int64 [b]."""

    @abstractmethod
    def target(self, soft: Scores, pictures: Pictures) -> Tensor:
        """What an attack lowers, [b]."""

    @abstractmethod
    def majority(self, training: Tensor, pictures: Pictures, classes: int) -> float:
        """The share that is wrong if the usual answer of the training images, int64 [n], is given always."""

    @abstractmethod
    def total(self, classes: int, grid: tuple[int, int]) -> int:
        """How many could be wrong in one picture."""

    def broken(self, before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
        """Did an attack do what was proven impossible? Bool [b]."""
        return after["wrong"] > before["most_wrong"]


@dataclass
class Labels(Task):
    """Which classes are in the picture? Wrong labels, of as many as there are classes."""

    name: ClassVar[str] = "labels"
    thresholds: Tensor = field(default_factory=lambda: torch.tensor(0))

    def network(self, classes: int, channels: int, narrow: int, wide: int) -> ResidualConfig:
        width = (narrow,) * 3 + (wide,) * 6
        kernels = (3, 1, 3, 1, 1, 1, 1, 1)
        return ResidualConfig(classes, channels, width, kernels, paths=1, shake=False, step="logits")

    def loss(self, scores: Scores, pictures: Pictures, window: tuple[int, int]) -> Tensor:
        """Cross-entropy of each label: half by all scores, half by those that the two worst windows for it leave.

        That alone learns slowly, since it does not say where a label is. So each tile's class is learned, too.
        """
        truth = pictures.present(scores.shape[1])
        sign = torch.where(truth, 1.0, -1.0)[:, :, None, None]
        whole = (sign * scores).flatten(0, 1)[:, None]  # evidence for the truth, of each label by itself
        left = whole
        for _ in range(2):
            worst = box_sums(left.detach(), window).flatten(1).argmax(dim=1)
            left = left * (1 - window_mask(worst, window, left.shape[2:]))
        cells = scores.shape[2] * scores.shape[3] / TILES
        losses = [F.softplus(-maps.sum(dim=(1, 2, 3)) / cells).mean() for maps in (whole, left)]
        tiles = F.adaptive_avg_pool2d(scores, SIDE)  # b k side side
        return scores.shape[1] * (losses[0] + losses[1]) / 2 + F.cross_entropy(tiles, pictures.tiles)

    def settle(self, scores: IntegerScores, pictures: Pictures) -> dict[str, Any]:
        """Each label's threshold with the fewest errors of the plain sums."""
        cells = scores.values.shape[2] * scores.values.shape[3]
        sums = scores.values.sum(dim=(2, 3))  # b k
        tried = torch.cat([sums // cells - 1, sums // cells]).sort(dim=0).values  # 2b k
        errors = ((sums > cells * tried[:, None]) != pictures.present(sums.shape[1])).sum(dim=1)
        self.thresholds = tried.gather(0, errors.argmin(dim=0)[None])[0].cpu()
        return {"thresholds": self.thresholds.tolist()}

    def certify(self, scores: IntegerScores, regions: Regions) -> LabelCertificate:
        return certify_maps(scores, self.thresholds, regions)

    def columns(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> dict[str, Tensor]:
        found = self.certify(scores, regions)
        truth = pictures.present(scores.values.shape[1])
        return {
            "wrong": (found.present != truth).sum(dim=1),
            "most_wrong": found.most_wrong(truth),
            "present": bits(found.present),
            "proven": bits(found.proven),
        }

    def weakest(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> Tensor:
        truth = pictures.present(scores.values.shape[1])
        return (~self.certify(scores, regions).kept(truth)).sum(dim=1).argmax(dim=1)

    def target(self, soft: Scores, pictures: Pictures) -> Tensor:
        sign = torch.where(pictures.present(soft.shape[1]), 1.0, -1.0)
        ahead = sign * (soft.sum(dim=(2, 3)) / (soft.shape[2] * soft.shape[3] / TILES))
        return ahead.clamp(min=-MARGIN).sum(dim=1)

    def total(self, classes: int, grid: tuple[int, int]) -> int:
        return classes

    def majority(self, training: Tensor, pictures: Pictures, classes: int) -> float:
        share = torch.bincount(training, minlength=classes) / len(training)
        usual = 1 - (1 - share) ** TILES > 0.5
        return float((pictures.present(classes) != usual.to(pictures.tiles.device)).double().mean())

    def broken(self, before: dict[str, Tensor], after: dict[str, Tensor]) -> Tensor:
        changed = (before["present"] ^ after["present"]) & before["proven"]
        return super().broken(before, after) | (changed != 0)


@dataclass
class PixelClasses(Task):
    """Which class has each pixel? Wrong pixels, counted on the grid of the scores."""

    name: ClassVar[str] = "segmentation"

    def network(self, classes: int, channels: int, narrow: int, wide: int) -> ResidualConfig:
        """A receptive field of 21 on every second row and column."""
        kernels, strides = (3, 3, 3, 3, 3, 1, 1), (2, 1, 1, 1, 1, 1, 1)
        width = (narrow,) + (wide,) * 7
        return ResidualConfig(classes, channels, width, kernels, strides, paths=1, shake=False, step="logits")

    def loss(self, scores: Scores, pictures: Pictures, window: tuple[int, int]) -> Tensor:
        return F.cross_entropy(scores, pictures.pixels((scores.shape[2], scores.shape[3])))

    def settle(self, scores: IntegerScores, pictures: Pictures) -> dict[str, Any]:
        return {}

    def segment(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> Segmentation:
        return segment(scores, pictures.pixels(regions.grid), regions)

    def columns(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> dict[str, Tensor]:
        found = self.segment(scores, pictures, regions)
        cells = regions.grid[0] * regions.grid[1]
        return {"wrong": (~found.right).flatten(1).sum(dim=1), "most_wrong": cells - found.surviving}

    def weakest(self, scores: IntegerScores, pictures: Pictures, regions: Regions) -> Tensor:
        found = self.segment(scores, pictures, regions)
        return (regions.placements[None] == found.weakest_region[:, None]).all(dim=2).int().argmax(dim=1)

    def target(self, soft: Scores, pictures: Pictures) -> Tensor:
        truth = pictures.pixels((soft.shape[2], soft.shape[3]))[:, None]
        others = soft.scatter(1, truth, float("-inf")).amax(dim=1)
        return (soft.gather(1, truth)[:, 0] - others).clamp(min=-MARGIN).sum(dim=(1, 2))

    def total(self, classes: int, grid: tuple[int, int]) -> int:
        return grid[0] * grid[1]

    def majority(self, training: Tensor, pictures: Pictures, classes: int) -> float:
        usual = torch.bincount(training, minlength=classes).argmax()
        return float((pictures.tiles != usual.to(pictures.tiles.device)).double().mean())


TASKS: dict[str, type[Task]] = {kind.name: kind for kind in (Labels, PixelClasses)}


def bits(flags: Tensor) -> Tensor:
    """Flags [b k] as one number each: bit c is class c."""
    return (flags.long() << torch.arange(flags.shape[1], device=flags.device)).sum(dim=1)
