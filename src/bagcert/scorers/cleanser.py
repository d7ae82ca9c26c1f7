"""PatchCleanser (Xiang et al. 2022) with a classifier of its own, trained under two random masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.scorers.base import Blocks, Channels, Classes, Normalize, Width
from bagcert.scorers.classifier import Classifier, ClassifierShape
from bagcert.scorers.double_masking import DoubleMasking
from bagcert.scorers.views import HidingConfig, Patch
from bagcert.tensors import Images

MASKED_AT_ONCE = {"cpu": 2**6, "cuda": 2**10}  # masked images per pass


@dataclass(frozen=True)
class CleanserConfig(HidingConfig):
    """The masks and the classifier."""

    name: ClassVar[str] = "cleanser"
    classes: Classes = 10
    channels: Channels = 3
    patch: Patch = (5, 5)
    # The paper's k: 6 x 6 masks of 9x9 pixels against 5x5 patches on 32x32 images, 666 pairs.
    masks: Annotated[int, Key("masks along each axis", most=10_000)] = 6
    width: Width = 64
    blocks: Blocks = (2, 2, 2, 2)

    def __post_init__(self) -> None:
        if min(*self.patch, self.masks) < 1:
            raise UsageError(
                f"Patch and masks of the network must be at least 1, but are {self.patch} and {self.masks}."
            )
        self.classifier  # noqa: B018 (refuses what it does not take)

    @property
    def classifier(self) -> ClassifierShape:
        return ClassifierShape(self.channels, self.classes, self.width, self.blocks)

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "CleanserScorer":
        return CleanserScorer(self, image_size, mean, std)


class CleanserScorer(DoubleMasking):
    """A residual classifier, trained for its masks; a masked pixel has the mean color."""

    config: CleanserConfig

    def __init__(
        self, config: CleanserConfig, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(mean, std, config.channels)
        self.classifier = Classifier(config.classifier)
        self.hide(self.rectangles(config.patch, image_size))

    @property
    def at_once(self) -> int:
        return at_once(MASKED_AT_ONCE, self.normalize.mean.device)

    def classify(self, images: Images, masks: Tensor) -> Tensor:
        logits: Tensor = self.classifier(torch.where(masks[:, None], 0.0, self.normalize(images)))
        return logits
