"""The paper's two conditions for plain sums: the largest region, and every region on its own."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.rules.certificate import Certificate, own
from bagcert.rules.masking_rule import second_masks
from bagcert.rules.pairs import weakest_pair
from bagcert.rules.rule import Rule, rivals_only, weakest
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.threats import Regions
from bagcert.threats.threat import MOST_PATCHES


@final
@dataclass(frozen=True)
class LargestRegion(Rule):
    """Argmax of the sums, certified against the size of the largest region alone.

    Condition 3.3:   min_{c ≠ ŷ} Σ Δ_c  >  2 R^max,   R^max = max_l |R(l)|

    A patch changes at most R^max scores of each class, each by at most hi - lo, so it lowers Σ Δ_c by at most
    2 (hi - lo) R^max.
    This is also the condition of derandomized smoothing (Levine & Feizi).

    Against several patches at once, R^max is the most scores that they reach together: of two, the size of the largest
    union; of K, at most K times the largest region, or all scores.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=bagcert.LargestRegion())
    Certificate(class 2, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    """

    name: ClassVar[str] = "largest-region"
    patches: ClassVar[int] = MOST_PATCHES

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        size, first, second = largest_union(regions)
        certificate = weakest(self._least_leads(scores, predicted, size)[:, :, None], predicted, regions)
        one, two = (
            None if place is None else regions.placements[place].repeat(len(predicted), 1) for place in (first, second)
        )
        return Certificate(predicted, certificate.certified, certificate.lead, one, two, certificate.weakest_class)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """Those of Condition 3.2, for this one has no placements."""
        return EveryRegion().leads(scores, classes, regions)

    def least_leads(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        return self._least_leads(scores, classes, largest_union(regions)[0])

    def _least_leads(self, scores: IntegerScores, classes: Tensor, size: int) -> Tensor:
        low, high = scores.need_bounds(self.name)
        ahead = (own(sums(scores.low), classes)[:, None] - sums(scores.high)).long()
        return rivals_only(ahead - 2 * (high - low) * size, classes)


def largest_union(regions: Regions) -> tuple[int, int, int | None]:
    """How many scores the patches reach at most, and by which regions; of more than two patches a bound, and one."""
    size, first = regions.sizes.max(dim=0)
    if regions.count != 2:
        return min(regions.count * int(size), regions.grid[0] * regions.grid[1]), int(first), None
    ones = torch.ones(1, *regions.grid, dtype=torch.int32, device=regions.sizes.device)
    rest, seconds = second_masks(ones, regions, regions)
    first = rest[0].argmin()
    return ones[0].numel() - int(rest[0, first]), int(first), int(seconds[0, first])


@final
@dataclass(frozen=True)
class EveryRegion(Rule):
    """Argmax of the sums, certified against every region on its own.

    Condition 3.2:   min_{c ≠ ŷ} Σ_{(i,j) ∉ R(l)} Δ_{i,j,c}  >  (hi - lo) |R(l)|   for all l ∈ 𝓛

    Inside R(l) the attacker can at worst make every Δ equal to lo - hi; outside, nothing changes. The attacker can
    reach that worst map for one rival, so for plain sums the condition is exact up to ties.

    Against K patches at once the same holds with the union U of any K regions in place of R(l), by the same proof. With
    w_c = Δ_c + hi - lo, which is never negative, it reads
        Σ Δ_c  >  Σ_U w_c
    For K = 2 all pairs are searched, so it is exact up to ties. For more, Σ_U w_c <= K max_l Σ_{R(l)} w_c is a bound.

    Differs from the paper: after Condition 3.2 it subtracts a sum of Δ_{c_t}, which is zero; Δ_c is meant.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=bagcert.EveryRegion())
    Certificate(class 2, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    """

    name: ClassVar[str] = "every-region"
    patches: ClassVar[int] = MOST_PATCHES

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        if regions.count == 2:
            weights, all_taken = self._weights(scores, predicted)
            left, first, second, rival = weakest_pair(weights, predicted, regions)
            places = regions.placements[first], regions.placements[second]
            found = Certificate(predicted, left > all_taken, left - all_taken, *places, rival)
        else:
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
        the true label, among the five best. Against several patches at once, the rank is a bound.
        """
        regions = self._fitting(scores, regions)
        parts = self._parts(scores, regions)
        ranks = []
        for part, mine in zip(parts, torch.split(classes, [len(part.values) for part in parts]), strict=True):
            leads = self.leads(part, mine, regions)  # b k n
            ranks.append(1 + (leads <= 0).sum(dim=1).amax(dim=1))
        return torch.cat(ranks)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """What the worst attack leaves of the lead of each image's class over every rival, for each region: [b k n].

        Against several patches, each region goes with the others that take most.
        """
        if regions.count > 1:
            weights, all_taken = self._weights(scores, classes)
            if regions.count == 2:
                left = second_masks(weights.flatten(0, 1), regions, regions)[0].view(*weights.shape[:2], -1)
            else:
                heavy = regions.sums(weights.clamp(min=0))
                left = sums(weights)[..., None] - heavy - (regions.count - 1) * heavy.amax(dim=2, keepdim=True)
            return rivals_only(left - all_taken, classes)
        return rivals_only(self._kept(scores, classes, regions)[:, None] - outside(scores.high, regions), classes)

    def _weights(self, scores: IntegerScores, classes: Tensor) -> tuple[Tensor, int]:
        """w = Δ + hi - lo of each image's class against every rival, int64 [b k i j], and Σ (hi - lo)."""
        low, high = scores.need_bounds(self.name)
        delta = own(scores.low, classes)[:, None].long() - scores.high
        return delta + (high - low), (high - low) * delta.shape[2] * delta.shape[3]

    def _kept(self, scores: IntegerScores, classes: Tensor, regions: Regions) -> Tensor:
        """The sum that each image's class keeps outside each region, less what a rival can gain inside it: [b n]."""
        low, high = scores.need_bounds(self.name)
        least = outside(own(scores.low, classes), regions)
        taken = (high - low) * regions.sizes  # int64, for any bounds
        if int(taken.max()) < 2**30:
            taken = taken.to(least.dtype)  # sums in int32 stay below 2**28
        return least - taken
