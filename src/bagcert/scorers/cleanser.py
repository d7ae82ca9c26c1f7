"""PatchCleanser (Xiang et al. 2022): a whole-image classifier that sees each image under all pairs of masks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.scorers.base import LOGITS, Blocks, Channels, Classes, Normalize, Width
from bagcert.scorers.classifier import Classifier, ClassifierShape
from bagcert.scorers.views import HidingConfig, HidingScorer, Patch
from bagcert.tensors import Images, Scores

MASKED_AT_ONCE = {"cpu": 2**9, "cuda": 2**13}  # masked images per pass


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


class CleanserScorer(HidingScorer):
    """View m counts, for each class, the second masks with which the classifier gives that class.

    Let c(m, m') be the class under the masks m and m'; a masked pixel is the mean color, whatever it was. View m has
    one question for each mask m', answered by c(m, m'); the view that hides nothing has the single masks, c(m', m').

    Unanimous views agree: if m is unanimous about a and m' about b, then a = c(m, m') = c(m', m) = b; if all single
    masks give b, then a = c(m, m) = b.

    With the rule `unanimous` this is PatchCleanser's inference: the class on which all single masks agree; else that of
    a mask which keeps it with every second one; else the majority of the single masks, the lowest class on ties. Its
    certificate, two-mask correctness, asks that all pairs give one class. Ours asks it of the pairs of one mask around
    each placement, by the same proof; so it certifies everything that theirs does.
    """

    trains: ClassVar[str] = LOGITS
    config: CleanserConfig

    def __init__(
        self, config: CleanserConfig, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(mean, std, config.channels)
        self.classifier = Classifier(config.classifier)
        self.hide(config.patch, image_size)

    @property
    def passes(self) -> int:
        return len(self.hidden) * (len(self.hidden) + 1) // 2

    @property
    def questions(self) -> int:
        return len(self.hidden)

    def forward(self, images: Images) -> Scores:
        """The logits; in training those of each image under two random masks, as a map of one entry."""
        if not self.training:
            return self.step.soft(self.logits(images))
        drawn = torch.randint(len(self.hidden), (2, len(images)), device=images.device)
        shown = self._masked(images, self.hidden.masks(drawn[0]) | self.hidden.masks(drawn[1]))
        return self.classifier(shown).float()[:, :, None, None]  # type: ignore[no-any-return]

    def logits(self, images: Images) -> Tensor:
        """Under each single mask, [b k n 1]: the inference asks these first."""
        masks = self.hidden.masks(torch.arange(len(self.hidden), device=images.device))
        shown = self._masked(images[:, None], masks)  # b n c h w
        logits: Tensor = self.classifier(shown.flatten(0, 1))
        return logits.view(len(images), len(masks), -1).transpose(1, 2)[..., None]

    def counts(self, images: Images) -> Tensor:
        total = len(self.hidden)
        first, second = torch.triu_indices(total, total, device=images.device)  # all pairs, and each mask with itself
        winners = torch.empty(len(images), total, total, dtype=torch.int64, device=images.device)
        count = max(1, at_once(MASKED_AT_ONCE, images.device) // len(images))
        for pairs in torch.split(torch.arange(len(first), device=images.device), count):
            one, two = first[pairs], second[pairs]
            shown = self._masked(images[:, None], self.hidden.masks(one) | self.hidden.masks(two))
            classes = self.classifier(shown.flatten(0, 1)).argmax(dim=1).view(len(images), len(pairs))
            winners[:, one, two] = winners[:, two, one] = classes
        singles = winners.diagonal(dim1=1, dim2=2)[:, None]  # b 1 n
        votes = F.one_hot(torch.cat([winners, singles], dim=1), self.config.classes)
        return votes.sum(dim=2).transpose(1, 2)  # b k n+1

    def _masked(self, images: Images, masks: Tensor) -> Images:
        """The normalized images [... n c h w], or one for all masks, with 0 where masks [n h w] hide them."""
        return torch.where(masks[:, None], 0.0, self.normalize(images))
