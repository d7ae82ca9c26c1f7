"""Any monotone way to add up scores: Condition 3.1 itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.certificate import Certificate, own
from bagcert.rules.rule import Rule, rivals_only
from bagcert.rules.scores import IntegerScores
from bagcert.rules.sums import EveryRegion
from bagcert.threats import Regions

Aggregator = Callable[[Tensor], Tensor]  # int64 [m i j] -> int64 [m]


@final
@dataclass(frozen=True)
class Monotone(Rule):
    """Argmax of g over each class's map, if raising a score never lowers g.

    Condition 3.1:   g(s^wc(l))_ŷ > g(s^wc(l))_c   for all c ≠ ŷ, all l ∈ 𝓛

    s^wc sets the scores in R(l) to lo for ŷ and to hi for every other class. Any attack leaves ŷ's map at or above its
    s^wc, and a rival's map at or below its own. g is monotone and sees one class at a time, so ŷ stays ahead.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> from bagcert.rules import capped_sum
    >>> rule = bagcert.Monotone(capped_sum(20))  # more than 20 votes count as 20
    >>> bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=rule)
    Certificate(class 2, certified, lead 4 over class 0 at 2x2 at row 1, column 1)
    """

    aggregate: Aggregator
    name: ClassVar[str] = "monotone"
    asks: ClassVar[tuple[str, str] | None] = ("an aggregator", "aggregate")

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return self._aggregated(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        low, high = scores.need_bounds(self.name)
        self._check_monotone(scores.values, low, high)
        predicted = self._predict(scores, regions)
        mine, others = own(scores.low, predicted)[:, None].long(), scores.high.long()
        lead = torch.full_like(predicted, torch.iinfo(torch.int64).max)
        region, rival = torch.zeros_like(predicted), torch.zeros_like(predicted)
        for index in range(len(regions)):
            mask = regions.masks(torch.tensor([index], device=predicted.device))
            attacked = self._aggregated(mine.masked_fill(mask, low)) - self._aggregated(others.masked_fill(mask, high))
            here, closest = rivals_only(attacked, predicted).min(dim=1)
            worse = here < lead
            lead, rival = torch.where(worse, here, lead), torch.where(worse, closest, rival)
            region = torch.where(worse, index, region)
        return Certificate(predicted, lead > 0, lead, regions.placements[region], None, rival)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """Those of plain sums, whatever g is: g itself takes one pass per placement."""
        return EveryRegion().leads(scores, classes, regions)

    def _aggregated(self, maps: Tensor) -> Tensor:
        """g of every class's map, [b k]."""
        result = self.aggregate(maps.flatten(0, 1).long())
        if result.dtype != torch.int64 or result.shape != (maps.shape[0] * maps.shape[1],):
            raise UsageError(
                "The aggregator must turn int64 [maps, rows, columns] into int64 [maps], but returns "
                f"{result.dtype} {list(result.shape)}. Sum over the last two axes and keep whole numbers."
            )
        return result.view(maps.shape[:2])

    def _check_monotone(self, values: Tensor, low: int, high: int) -> None:
        """A spot check, not a proof: g must not fall if all scores rise to `high`, nor rise if all fall to `low`."""
        here = self._aggregated(values)
        floor, ceiling = (self._aggregated(torch.full_like(values, bound, dtype=torch.int64)) for bound in (low, high))
        if bool((floor > here).any() or (here > ceiling).any()):
            raise UsageError("The aggregator is not monotone: it falls as scores rise. Use another rule.")


def weighted_sum(weights: Tensor) -> Aggregator:
    """Σ w_ij s_ij with whole weights w in 0..1024, so that no sum overflows."""
    if weights.is_floating_point() or bool(((weights < 0) | (weights > 1024)).any()):
        raise UsageError("Weights must be whole numbers in 0..1024. Scale and round them.")
    return lambda maps: (maps * weights.to(maps.device)).sum(dim=(-2, -1))


def capped_sum(cap: int) -> Aggregator:
    """The sum, but never more than `cap`: beyond it a class gains nothing."""
    return lambda maps: maps.sum(dim=(-2, -1)).clamp(max=cap)


def trimmed_sum(dropped: int) -> Aggregator:
    """The sum without the `dropped` highest and the `dropped` lowest scores."""

    def aggregate(maps: Tensor) -> Tensor:
        ordered = maps.flatten(1).sort(dim=1).values
        return ordered[:, dropped : max(dropped, ordered.shape[1] - dropped)].sum(dim=1)

    return aggregate
