"""What an attack drives down: for each rule a differentiable stand-in for its own inference.

A goal only steers. Whether an attack succeeded is decided by the rule itself, on the integer scores of the whole image.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules import Detect, EveryRegion, LargestRegion, Masked, Monotone, Rule, TwoMask, Unanimous
from bagcert.rules.certificate import own
from bagcert.rules.masking_rule import second_masks
from bagcert.tensors import Scores
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class Aim:
    """For n attacks: the class to defeat, and the class to replace it, or none in particular."""

    predicted: Tensor  # int64 [n]
    target: Tensor | None
    unit: int = 1  # the integer score that stands for a soft score of 1.0

    def select(self, kept: Tensor) -> "Aim":
        return Aim(self.predicted[kept], None if self.target is None else self.target[kept], self.unit)

    def lead(self, totals: Tensor) -> Tensor:
        """From totals [n k ...], the lead of the predicted class over the target, or over its closest rival."""
        mine = own(totals, self.predicted)
        if self.target is not None:
            return mine - own(totals, self.target)
        return mine - others(totals, self.predicted).amax(dim=1)

    def rival(self, totals: Tensor) -> Tensor:
        """The target, or the closest rival by totals [n k]."""
        return others(totals, self.predicted).argmax(dim=1) if self.target is None else self.target


class Goal(ABC):
    """A loss per attack; it is negative, or nearly so, if the prediction changes."""

    every: int  # steps from one test by the rule itself to the next

    @abstractmethod
    def losses(self, scores: Scores) -> Tensor:
        """From soft scores [n k i j] to losses [n], in score units per position."""

    @abstractmethod
    def refreshed(self, scores: Scores, kept: Tensor) -> "Goal":
        """The goal of the attacks that go on, whose soft scores are given; called at every test."""


@dataclass(frozen=True, eq=False)
class SumGoal(Goal):
    """The margin of section 3.3, min_{c ≠ ŷ} mean Δ_c, or of one fixed target (App. A.2).

    The loss there is cut at M = 1, which mean Δ never exceeds for scores in [0, 1]; so there is no cut here, and logits
    keep their gradient.
    """

    aim: Aim
    every: int = 1

    def losses(self, scores: Scores) -> Tensor:
        return self.aim.lead(scores.mean(dim=(2, 3)))

    def refreshed(self, scores: Scores, kept: Tensor) -> "SumGoal":
        return replace(self, aim=self.aim.select(kept))


@dataclass(frozen=True, eq=False)
class MaskedGoal(Goal):
    """The lead between what detect-and-mask leaves of each class: its inference, which can be differentiated."""

    aim: Aim
    rule: Masked
    masks: Regions
    every: int = 1

    def losses(self, scores: Scores) -> Tensor:
        part, whole = self.rule.share
        total = scores.sum(dim=(2, 3))
        heaviest = self.masks.sums(scores).amax(dim=2)
        kept = torch.where(heaviest * whole > total * part, total - heaviest, total)
        return self.aim.lead(kept) / (scores.shape[2] * scores.shape[3])

    def refreshed(self, scores: Scores, kept: Tensor) -> "MaskedGoal":
        return replace(self, aim=self.aim.select(kept))


PAIRS = 16  # pairs of masks followed from one test to the next


@dataclass(frozen=True, eq=False)
class TwoMaskGoal(Goal):
    """Nobody is consistent, and ŷ loses the plain sums: then the fallback answers with another class.

        max( Σ Δ,  max_{m1} min_{m2} Σ_{outside m1 ∪ m2} Δ ) < 0

    Under every first mask ŷ must lose with some second one. The first mask that hides the patch sees clean scores, so
    this needs a placement where the certificate fails: start at the weakest one. All pairs are too many to
    differentiate: at every test the first masks that serve ŷ best, each with its worst second one, are picked from the
    scores as they are.

    The other way, making a rival consistent (under some first mask it wins with every second one), is harder: CIFAR-10,
    width 256, 5x5, 30 steps, 8 images that were right and not certified: this way 8 flipped, that way 2 to 3, the
    nearer of the two at each step 3 to 4. A rival that becomes consistent on the way counts all the same.
    """

    aim: Aim
    masks: Regions
    kept: Tensor | None = None  # float32 [n q i j]: 1 outside the pairs that serve ŷ best
    every: int = 5

    def losses(self, scores: Scores) -> Tensor:
        assert self.kept is not None, "refreshed at every test, the first before the first step"
        pairs = torch.einsum("nkij,nqij->nkq", scores, self.kept)
        leads = self.aim.lead(torch.cat([pairs, scores.sum(dim=(2, 3))[:, :, None]], dim=2))
        return leads.amax(dim=1) / (scores.shape[2] * scores.shape[3])

    @torch.no_grad()
    def refreshed(self, scores: Scores, kept: Tensor) -> "TwoMaskGoal":
        aim = self.aim.select(kept)
        left, second = second_masks(ahead(aim, scores), self.masks, self.masks)
        return TwoMaskGoal(aim, self.masks, outside_best(left, second, self.masks).to(scores.dtype))


def ahead(aim: Aim, scores: Scores) -> Tensor:
    """Δ of the predicted class over the target or the closest rival, [n i j]."""
    return own(scores, aim.predicted) - own(scores, aim.rival(scores.sum(dim=(2, 3))))


def outside_best(left: Tensor, second: Tensor, masks: Regions) -> Tensor:
    """What the best pairs do not take, [n q i j]; given what each first mask and its second one leave, two [n m]."""
    best = left.topk(min(PAIRS, len(masks)), dim=1).indices
    taken = masks.masks(best.flatten()) | masks.masks(second.gather(1, best).flatten())
    return (~taken).view(*best.shape, *taken.shape[1:])


@dataclass(frozen=True, eq=False)
class AlertGoal(Goal):
    """Another class c answers, and no mask gives it away:

        max( loss of the goal against the class alone,  max_m max_d Σ_{outside m} (s_d - s_c) - t ) < 0

    Here c is the target or the closest rival. The first term brings c to the front, the second keeps every other class
    from leading it by more than t outside any mask.

    Against two patches at once the masks are unions of two. All of them are too many to differentiate: at every test
    the first masks that betray c most, each with the second one that does, are picked from the scores as they are.
    """

    goal: SumGoal | TwoMaskGoal
    masks: Regions
    above: int
    kept: Tensor | None = None  # of unions, float32 [n q i j]: 1 outside those that betray c most

    @property
    def every(self) -> int:  # type: ignore[override]
        return self.goal.every

    def losses(self, scores: Scores) -> Tensor:
        aim, totals = self.goal.aim, scores.sum(dim=(2, 3))
        if self.kept is None:
            outside = totals[:, :, None] - self.masks.sums(scores)  # n k m
        else:
            outside = torch.einsum("nkij,nqij->nkq", scores, self.kept)
        behind = outside - own(outside, aim.rival(totals))[:, None]
        cells = scores.shape[2] * scores.shape[3]
        return torch.maximum(self.goal.losses(scores), (behind.flatten(1).amax(dim=1) - self.above / aim.unit) / cells)

    @torch.no_grad()
    def refreshed(self, scores: Scores, kept: Tensor) -> "AlertGoal":
        goal = self.goal.refreshed(scores, kept)
        if self.masks.count == 1:
            return replace(self, goal=goal)
        least, second = second_masks(-ahead(goal.aim, scores), self.masks, self.masks)
        return replace(self, goal=goal, kept=outside_best(-least, second, self.masks).to(scores.dtype))


def others(totals: Tensor, classes: Tensor) -> Tensor:
    """Totals [n k ...] with each attack's own class out of the way."""
    index = classes.reshape(-1, *(1,) * (totals.dim() - 1)).expand(-1, 1, *totals.shape[2:])
    return totals.scatter(1, index, float("-inf"))


def need_goal(rule: Rule) -> None:
    """Refuse a rule that no attack is made for."""
    if rule.name not in GOALS:
        raise UsageError(f"Rule '{rule.name}' cannot be attacked, only {', '.join(GOALS)}. Add its row to GOALS.")


def goal_for(rule: Rule, aim: Aim, regions: Regions) -> Goal:
    """The goal against a rule."""
    need_goal(rule)
    return GOALS[rule.name](rule, aim, regions)


def against_sums(rule: Rule, aim: Aim, regions: Regions) -> Goal:
    """Also against `monotone`, since its aggregator takes integers only."""
    return SumGoal(aim)


def against_views(rule: Rule, aim: Aim, regions: Regions) -> Goal:
    """By the logits of the plain image or of its single masks; the rule's own answer takes hundreds of passes."""
    return SumGoal(aim, every=10)


def against_masked(rule: Masked, aim: Aim, regions: Regions) -> Goal:
    return MaskedGoal(aim, rule, rule.masks_for(regions))


def against_two_mask(rule: TwoMask, aim: Aim, regions: Regions) -> Goal:
    """Of two patches at once, by the plain sums, which answer where no class is consistent."""
    masks = rule.masks_for(regions)
    goal: TwoMaskGoal | SumGoal = TwoMaskGoal(aim, masks) if masks.count == 1 else SumGoal(aim, every=10)
    return goal if rule.alert_above is None else AlertGoal(goal, masks, rule.alert_above)


def against_detect(rule: Detect, aim: Aim, regions: Regions) -> Goal:
    masks = rule.masks_for(regions)
    return AlertGoal(SumGoal(aim, every=1 if masks.count == 1 else 10), masks, rule.alert_above)


GOALS: dict[str, Callable[[Any, Aim, Regions], Goal]] = {
    LargestRegion.name: against_sums,
    EveryRegion.name: against_sums,
    Monotone.name: against_sums,
    Masked.name: against_masked,
    TwoMask.name: against_two_mask,
    Detect.name: against_detect,
    Unanimous.name: against_views,
}
