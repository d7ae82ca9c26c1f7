"""Losses: the one of section 3.3, and others for other rules and networks. Each is the mean over a batch."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from bagcert.config import DERIVED, Key
from bagcert.scorers.base import LOGITS, MARGINS, MASKED, SCORES, BuiltScorer, evaluating
from bagcert.scorers.double_masking import DoubleMasking
from bagcert.tensors import Images, Labels, Scores
from bagcert.threats import Footprint, Threat


def box_sums(maps: Tensor, window: tuple[int, int]) -> Tensor:
    """Sums over every window that lies inside the map: [b k i j] to [b k i-height+1 j-width+1].

    We sum along one axis, then the other: 22 instead of 121 additions for 11x11, and no differences of large sums.
    """
    height, width = window
    rows = F.avg_pool2d(maps, (height, 1), stride=1, divisor_override=1)
    return F.avg_pool2d(rows, (1, width), stride=1, divisor_override=1)


def window_mask(index: Tensor, window: tuple[int, int], grid: Sequence[int]) -> Tensor:
    """The windows at flat indices into `box_sums`, as 0/1 maps: [b] to [b 1 i j]."""
    height, width = window
    columns = grid[1] - width + 1
    top, left = (index // columns)[:, None], (index % columns)[:, None]
    row = torch.arange(grid[0], device=index.device)
    column = torch.arange(grid[1], device=index.device)
    rows = (row >= top) & (row < top + height)  # b i
    across = (column >= left) & (column < left + width)  # b j
    return (rows[:, None, :, None] & across[:, None, None, :]).float()


class Loss(ABC):
    """A number to minimize, from the soft scores of a batch and its labels."""

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = (SCORES,)  # the kinds of output of a network in training that it takes

    @abstractmethod
    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        """The mean loss of the batch, a scalar."""

    def scores(self, scorer: BuiltScorer, images: Images, labels: Labels) -> Scores:
        """What the loss reads of a batch: what the network returns in training, unless the loss asks it another way."""
        found: Scores = scorer(images)
        return found

    def against(self, threat: Threat, footprint: Footprint) -> "Loss":
        """The loss that trains a network of this footprint for this threat."""
        return self


@dataclass(frozen=True)
class WindowLoss(Loss):
    """A loss that takes windows of the score map away, each as large as what the patch reaches."""

    window: tuple[int, int] = field(default=(1, 1), metadata=DERIVED, kw_only=True)  # in outputs

    def against(self, threat: Threat, footprint: Footprint) -> Loss:
        height, width = footprint.regions(threat).extent
        return replace(self, window=(max(1, height), max(1, width)))


@dataclass(frozen=True)
class MarginLoss(Loss):
    """L̃_R + σ L_oh of section 3.3: be certified by Condition 3.3 against patches of unknown size.

        L̃_R = -min(min_{c ≠ c_t} mean_{i,j} Δ_c, M)       L_oh = max_{c ≠ c_max} S_c - S_{c_max}

    Differs from the paper: S is the mean over the positions, not the plain sum, since L_oh ∈ [-1, 0] needs S ∈ [0, 1].
    """

    name: ClassVar[str] = "margin"
    margin: Annotated[float, Key("M: twice the share of the scores that a patch may reach", 0, 1)] = 0.5
    one_hot: Annotated[float, Key("σ, the weight of the one-hot penalty", 0, 1000)] = 0.0

    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        means = scores.mean(dim=(2, 3))  # b k
        loss = -lead_of(means, labels).clamp(max=self.margin).mean()
        if self.one_hot:
            loss = loss - self.one_hot * lead_of(means, means.argmax(dim=1)).mean()
        return loss


@dataclass(frozen=True)
class TwoMaskLoss(WindowLoss):
    """Cross-entropy of the mean scores that two masks leave, the two that hurt the true class most.

    For the rule `two-mask`, whose certificate requires that the class wins under every pair of masks. The pair is
    picked greedily per image, one mask after the other, by the margin of the sums that are left.
    """

    name: ClassVar[str] = "two-mask"
    masks: ClassVar[int] = 2  # at once
    smoothing: Annotated[float, Key("label smoothing", 0, 1)] = 0.0
    weight: Annotated[float, Key("share of the masked loss; the rest is the plain cross-entropy", 0, 1)] = 1.0

    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        kept = greedy_mask(scores.detach(), labels, self.window, self.masks)  # b 1 i j
        means = (scores * kept).sum(dim=(2, 3)) / kept.sum(dim=(2, 3)).clamp(min=1)  # b k
        loss = F.cross_entropy(means, labels, label_smoothing=self.smoothing)
        if self.weight < 1:
            plain = F.cross_entropy(scores.mean(dim=(2, 3)), labels, label_smoothing=self.smoothing)
            loss = self.weight * loss + (1 - self.weight) * plain
        return loss


@dataclass(frozen=True)
class DetectLoss(TwoMaskLoss):
    """Cross-entropy of the mean scores that one mask leaves, the one that hurts the true class most.

    For the rule `detect`, whose certificate requires that the class leads under every single mask.
    """

    name: ClassVar[str] = "detect"
    masks: ClassVar[int] = 1


@dataclass(frozen=True)
class CrossEntropyLoss(Loss):
    """Plain cross-entropy of the mean scores: the baseline, and the loss of rivals that certify in another way."""

    name: ClassVar[str] = "cross-entropy"
    reads: ClassVar[tuple[str, ...]] = (SCORES, LOGITS, MASKED)

    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        return F.cross_entropy(scores.mean(dim=(2, 3)), labels)


@dataclass(frozen=True)
class UnmaskedLoss(CrossEntropyLoss):
    """Cross-entropy of plain images, for networks under masks: as if they were trained for no defense."""

    name: ClassVar[str] = "unmasked"
    reads: ClassVar[tuple[str, ...]] = (MASKED,)

    def scores(self, scorer: BuiltScorer, images: Images, labels: Labels) -> Scores:
        none = torch.zeros_like(images[:, 0], dtype=torch.bool)
        return cast(DoubleMasking, scorer).under(none, images)


@dataclass(frozen=True)
class TwoMaskPixelsLoss(CrossEntropyLoss):
    """Cross-entropy of images under two masks of their pixels, the two that hurt the true class most.

    For networks under masks and the rule `unanimous`. The pair is picked greedily per image: the mask with the largest
    loss, then the one with the largest loss beside it (Saha et al. 2023).
    """

    name: ClassVar[str] = "two-mask-pixels"
    reads: ClassVar[tuple[str, ...]] = (MASKED,)
    tried: Annotated[int, Key("random masks to pick each of the two from, per image; 0: all", 0, 1024)] = 0

    def scores(self, scorer: BuiltScorer, images: Images, labels: Labels) -> Scores:
        masked = cast(DoubleMasking, scorer)
        return masked.under(worst_masks(masked, images, labels, self.tried), images)


@dataclass(frozen=True)
class MaskedLoss(WindowLoss):
    """PatchGuard's "provable adversarial training": cross-entropy after the true class has lost its heaviest window.

    For the rule `masked`: the worst mask for its certificate takes the most from the true class and leaves the other
    classes alone. Scores below 0 count as 0, and classes are compared by their mean over the positions.
    """

    name: ClassVar[str] = "masked"

    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        evidence = scores.clamp(min=0)
        heaviest = box_sums(evidence, self.window).flatten(2).amax(dim=2)  # b k
        lost = heaviest * F.one_hot(labels, scores.shape[1])
        return F.cross_entropy((evidence.sum(dim=(2, 3)) - lost) / (scores.shape[2] * scores.shape[3]), labels)


@dataclass(frozen=True)
class IntervalLoss(Loss):
    """Cross-entropy of the worst margins: the smallest lead over each rival by interval bounds (Chiang et al.).

    Instead of scores it takes the margins [b of over placements] that an `IntervalScorer` returns in training.
    """

    name: ClassVar[str] = "interval"
    reads: ClassVar[tuple[str, ...]] = (MARGINS,)

    def __call__(self, scores: Scores, labels: Labels) -> Tensor:
        margins = scores[torch.arange(len(labels), device=labels.device), labels].amin(dim=2)  # b over
        return F.cross_entropy(-margins, labels)


LOSSES: dict[str, type[Loss]] = {
    kind.name: kind
    for kind in (
        MarginLoss,
        TwoMaskLoss,
        DetectLoss,
        MaskedLoss,
        CrossEntropyLoss,
        UnmaskedLoss,
        TwoMaskPixelsLoss,
        IntervalLoss,
    )
}


def lead_of(sums: Tensor, labels: Labels) -> Tensor:
    """Σ Δ against the strongest rival: the label's entry of `sums` [b k ...] minus the largest other one.

    Tied rivals share the gradient. With votes, ties are common, and the lowest class should not take it all.
    """
    index = labels.reshape(-1, *(1,) * (sums.dim() - 1)).expand(-1, 1, *sums.shape[2:])
    own = sums.gather(1, index).squeeze(1)
    return own - sums.scatter(1, index, float("-inf")).amax(dim=1)


@torch.no_grad()
def greedy_mask(scores: Scores, labels: Labels, window: tuple[int, int], masks: int) -> Tensor:
    """1 outside so many windows, the worst one after the other; 0 inside: [b 1 i j]."""
    kept = torch.ones_like(scores[:, :1])
    for _ in range(masks):
        left = scores * kept
        outside = left.sum(dim=(2, 3))[:, :, None] - box_sums(left, window).flatten(2)  # b k n
        worst = lead_of(outside, labels).argmin(dim=1)
        kept = kept * (1 - window_mask(worst, window, scores.shape[2:]))
    return kept


@torch.compiler.disable(recursive=False)  # type: ignore[no-untyped-call,untyped-decorator]  # the network inside is compiled, once for all masks
@torch.no_grad()
def worst_masks(scorer: DoubleMasking, images: Images, labels: Labels, tried: int) -> Tensor:
    """Two masks of each image as one, bool [b h w], each the worst of all, or of `tried` random ones.

    Asked in evaluation mode, as a defense asks: no batch norm mixes images or takes these passes into its averages.
    """
    hidden, count = torch.zeros_like(images[:, 0], dtype=torch.bool), len(scorer.hidden)
    with evaluating(*scorer.children()):
        for _ in range(2):
            order = torch.rand(count, len(images), device=images.device).argsort(dim=0)  # a random one for each image
            choices = order[: tried or count]
            losses = [
                F.cross_entropy(scorer.classify(images, hidden | scorer.hidden.masks(each)), labels, reduction="none")
                for each in choices
            ]
            worst = torch.stack(losses).argmax(dim=0, keepdim=True)  # 1 b
            hidden = hidden | scorer.hidden.masks(choices.gather(0, worst)[0])
    return hidden
