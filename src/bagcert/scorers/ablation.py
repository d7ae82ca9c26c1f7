"""Derandomized smoothing (Levine & Feizi 2020): a classifier sees the image one small part at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.scorers.base import LOGITS, Blocks, BuiltScorer, Channels, Classes, NetworkConfig, Width
from bagcert.scorers.classifier import Classifier, ClassifierShape
from bagcert.scorers.steps import SoftmaxStep, ThresholdStep
from bagcert.tensors import Images, Scores
from bagcert.threats import Footprint

# Ablated images per pass; 1,024 block ablations of a whole batch are never in memory at once.
# On two cores, 64 or 128 per pass run about 1.6 times as fast as 512.
ABLATED_AT_ONCE = {"cpu": 2**7, "cuda": 2**13}


@dataclass(frozen=True)
class AblationConfig(NetworkConfig):
    """What an ablation keeps, how its classifier votes, and the classifier; the defaults are the paper's for CIFAR-10.

    Keeping all rows is column smoothing, keeping all columns is row smoothing, and keeping fewer of both is block
    smoothing.
    """

    name: ClassVar[str] = "ablation"
    classes: Classes = 10
    channels: Channels = 3
    kept: Annotated[tuple[int, int], Key("rows and columns that an ablation keeps, wrapping around the border")] = (
        32,
        4,
    )
    theta: Annotated[float, Key("an ablation votes for every class of this softmax; 0: the softmax is the score")] = 0.3
    width: Width = 64
    blocks: Blocks = (2, 2, 2, 2)

    def __post_init__(self) -> None:
        if not 0 <= self.theta <= 1:
            raise UsageError(f"The value of network.theta must lie in 0..1, but is {self.theta:g}.")
        self.classifier  # noqa: B018 (refuses what it does not take)

    @property
    def classifier(self) -> ClassifierShape:
        return ClassifierShape(2 * self.channels, self.classes, self.width, self.blocks)

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "AblationScorer":
        return AblationScorer(self, image_size)  # the paper does not normalize: 0 has to mean "ablated"


class AblationScorer(BuiltScorer):
    """One score map entry per ablation: what the classifier says about the image with all but a few pixels ablated.

    An ablated pixel is 0 in all of (x, 1 - x), so that black differs from ablated. The kept part starts at the entry's
    own row and column and wraps around the border; a patch reaches the ablations that keep any of its pixels
    (`Footprint.ablation`), and no others: the classifier sees nothing else of the image.

    Any rule works on these votes; the paper's is `largest-region`, except for ties.
    """

    traceable: ClassVar[bool] = False  # its classifier mixes everything it sees, which is one ablation
    alike: ClassVar[bool] = True  # column smoothing does not tell rows apart
    piecewise: ClassVar[bool] = True
    trains: ClassVar[str] = LOGITS
    config: AblationConfig
    rows: Tensor  # bool [i h]: the rows that an ablation in row i of the map keeps
    columns: Tensor  # bool [j w]

    def __init__(self, config: AblationConfig, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        self.step = ThresholdStep(config.theta) if config.theta else SoftmaxStep()
        self.classifier = Classifier(config.classifier)
        self.footprint = Footprint.ablation(config.kept, image_size)
        (seen,) = self.footprint.branches  # what an ablation keeps is what R(l) is made from
        self.register_buffer("rows", seen.rows, persistent=False)
        self.register_buffer("columns", seen.columns, persistent=False)

    @property
    def passes(self) -> int:
        return len(self.rows) * len(self.columns)

    def reach(self) -> dict[str, Any]:
        return {"kept": list(self.config.kept)}

    def forward(self, images: Images) -> Scores:
        """The soft scores; in training the logits of one ablation, drawn for the whole batch, as a map of one entry."""
        if not self.training:
            return self.step.soft(self.logits(images))
        ablation = torch.randint(len(self.rows) * len(self.columns), (1,), device=images.device)
        return self._ablated(images, ablation).float()[..., None]

    def logits(self, images: Images) -> Tensor:
        every = torch.arange(len(self.rows) * len(self.columns), device=images.device)
        return self.logits_of(images, every).view(images.shape[0], -1, len(self.rows), len(self.columns))

    def logits_at(self, images: Images, wanted: Tensor) -> Tensor:
        """Zeros for what is not wanted, unless another image wants more."""
        most = int(wanted.sum(dim=1).max())
        ablations = wanted.byte().argsort(dim=1, descending=True, stable=True)[:, :most]  # b most
        found = self.logits_of(images, ablations)
        blank = found.new_zeros(*found.shape[:2], wanted.shape[1])
        return blank.scatter(2, ablations[:, None].expand_as(found), found).view(*found.shape[:2], *self.footprint.grid)

    def logits_of(self, images: Images, ablations: Tensor) -> Tensor:
        """The logits of some ablations, numbered row by row: [n], or [b n] with its own per image, to [b k n].

        Piece by piece; gradients run each piece again instead of keeping it. An exported graph has no pieces, since the
        number of its images is not known yet.
        """
        if torch.compiler.is_exporting():
            return self._ablated(images, ablations)
        count = max(1, at_once(ABLATED_AT_ONCE, images.device) // len(images))
        parts = []
        for piece in torch.split(ablations, count, dim=-1):
            if torch.is_grad_enabled():
                parts.append(checkpoint(self._ablated, images, piece, use_reentrant=False))
            else:
                parts.append(self._ablated(images, piece))
        return torch.cat(parts, dim=2)

    def _ablated(self, images: Images, ablations: Tensor) -> Tensor:
        row, column = ablations // len(self.columns), ablations % len(self.columns)
        kept = self.rows[row][..., :, None] & self.columns[column][..., None, :]  # n h w or b n h w
        both = torch.cat([images, 1 - images], dim=1)
        shown = torch.where(kept[..., None, :, :], both[:, None], 0)  # b n 2c h w
        logits: Tensor = self.classifier(shown.flatten(0, 1))
        return logits.view(*shown.shape[:2], -1).transpose(1, 2)
