"""The paper's two conditions for plain sums: the largest region, and every region on its own."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.rules.rule import Certificate, Rule, own, rivals_only, weakest
from bagcert.rules.scores import IntegerScores
from bagcert.threats import Regions


@final
@dataclass(frozen=True)
class LargestRegion(Rule):
    """Argmax of the sums, certified against the size of the largest region alone.

    Condition 3.3:   min_{c ≠ ŷ} Σ Δ_c  >  2 R^max,   R^max = max_l |R(l)|

    A patch changes at most R^max scores of each class, each by at most hi - lo, so it lowers Σ Δ_c by at most
    2 (hi - lo) R^max.
    This is also the condition of derandomized smoothing (Levine & Feizi).
    """

    name: ClassVar[str] = "largest-region"

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        certificate = weakest(self.least_leads(scores, predicted, regions)[:, :, None], predicted, regions)
        region = regions.placements[regions.sizes.max(dim=0).indices].expand(len(predicted), 4).clone()
        return Certificate(predicted, certificate.certified, certificate.lead, region, None, certificate.weakest_class)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """Those of Condition 3.2, for this one has no placements."""
        return EveryRegion().leads(scores, classes, regions)

    def least_leads(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        low, high = scores.need_bounds(self.name)
        ahead = (own(sums(scores.low), classes)[:, None] - sums(scores.high)).long()
        return rivals_only(ahead - 2 * (high - low) * regions.sizes.max(), classes)


@final
@dataclass(frozen=True)
class EveryRegion(Rule):
    """Argmax of the sums, certified against every region on its own.

    Condition 3.2:   min_{c ≠ ŷ} Σ_{(i,j) ∉ R(l)} Δ_{i,j,c}  >  (hi - lo) |R(l)|   for all l ∈ 𝓛

    Inside R(l) the attacker can at worst make every Δ equal to lo - hi; outside, nothing changes. The attacker can
    reach that worst map for one rival, so for plain sums the condition is exact up to ties.

    Differs from the paper: after Condition 3.2 it subtracts a sum of Δ_{c_t}, which is zero; Δ_c is meant.
    """

    name: ClassVar[str] = "every-region"

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        found = weakest(self.leads(scores, predicted, regions), predicted, regions)
        return found if exact else Certificate(predicted, found.certified)

    def _needed(self, scores: IntegerScores, regions: Regions, exact: bool) -> Tensor:
        """The predicted class, the rival with the largest sum, and every rival that can come closer than that one.

        No score is below lo, so outside R(l) no rival has more than its sum minus lo for each score in R(l). So the
        lead over a rival is at least `floor` minus its sum. If that is more than the lead over the largest rival, it is
        not the weakest class. If only the decision is asked for, the largest rival is enough if it shows that there is
        no certificate; else the rivals whose lead may be 0 or less are enough.
        """
        low, _ = scores.need_bounds(self.name)
        predicted = self._predict(scores, regions)
        totals = sums(scores.high)  # b k
        largest = rivals_only(-totals, predicted).argmin(dim=1)
        kept = self._kept(scores, predicted, regions)  # b n
        lead = (kept - outside(own(scores.high, largest), regions)).amin(dim=1)
        floor = (kept + low * regions.sizes).amin(dim=1)
        nobody = torch.iinfo(floor.dtype).max
        needed = totals >= (floor - lead if exact else torch.where(lead > 0, floor, nobody))[:, None]
        return needed.scatter(1, torch.stack([predicted, largest], dim=1), True)

    @torch.no_grad()
    def worst_rank(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        """The worst rank by the sums that a patch can push each image's class [b] to, int64 [b]; the best rank is 1.

        A class keeps its rank above a rival at l if Condition 3.2 holds for the two. Inside R(l) the attacker can
        set the class to lo and all rivals to hi at once, so 1 plus the number of rivals for which it fails is the rank
        there, a tie counted as lost. For the predicted class, rank 1 is the certificate; rank 5 or better keeps it, or
        the true label, among the five best.
        """
        regions = self._fitting(scores, regions)
        parts = self._parts(scores, regions)
        ranks = []
        for part, mine in zip(parts, torch.split(classes, [len(part.values) for part in parts]), strict=True):
            leads = self.leads(part, mine, regions)  # b k n
            ranks.append(1 + (leads <= 0).sum(dim=1).amax(dim=1))
        return torch.cat(ranks)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """What the worst attack leaves of the lead of each image's class over every rival, for each region: [b k n]."""
        return rivals_only(self._kept(scores, classes, regions)[:, None] - outside(scores.high, regions), classes)

    def _kept(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        """The sum that each image's class keeps outside each region, less what a rival can gain inside it: [b n]."""
        low, high = scores.need_bounds(self.name)
        least = outside(own(scores.low, classes), regions)
        taken = (high - low) * regions.sizes  # int64, for any bounds
        if int(taken.max()) < 2**30:
            taken = taken.to(least.dtype)  # sums in int32 stay below 2**28
        return least - taken


def sums(scores: Tensor) -> Tensor:
    """Sums over all positions, [b k], in the type of the scores: `read_scores` chose one that holds them."""
    return scores.sum(dim=(-2, -1), dtype=scores.dtype)


def outside(scores: Tensor, regions: Regions) -> Tensor:
    """Sums over the positions outside each region, [b k n]."""
    return sums(scores)[..., None] - regions.sums(scores)
