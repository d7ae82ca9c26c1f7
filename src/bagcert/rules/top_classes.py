"""Sets of classes by two masks: a class that is among the k best outside every pair of masks cannot be taken out.

Among the k best outside two masks is a class whose sum there is less than that of fewer than k others; of equal sums
the lower index comes first.

Inference. A class is *consistent* if there is a mask under which it is among the k best whatever second mask is added.
The answer is the set of all consistent classes. If these are fewer than k, the classes with the largest plain sums fill
it up to k. For k = 1 this is the class of `two-mask`. For k > 1 there may be more than k consistent classes, each with
a mask of its own: the set may be larger than k.

Proven in the set:   Σ_{outside m1 ∪ m2} Δ_c <= 0   for fewer than k classes c, for all masks m1, m2

Here Δ_c = s_y - s_c for the class y in question; the classes c may be others for every pair.

Proof. Let the patch sit at l, with R(l) inside mask m. A pair that contains m sees only clean scores, so outside every
such pair y is among the k best of the attacked image, too. So m makes y consistent, and y is in the set. No bound on
the scores is used, and nothing that fills up the set, or is in it besides, takes y out.

Masks built for a larger threat prove a smaller one if each of its regions lies inside some mask m that meets the
condition with every second mask. With a guard band, Δ_c counts the low end of y and the high end of c.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.certificate import own
from bagcert.rules.masking_rule import heaviest_mask, outside_pairs, pieces
from bagcert.rules.rule import FEW, alike
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class TopClasses:
    """For each image, the classes that are given as the answer, and those that no patch takes out of it."""

    members: Tensor  # bool [b k]
    proven: Tensor  # bool [b k]: some of the members

    @property
    def sizes(self) -> Tensor:
        """How many classes each answer has, int64 [b]."""
        return self.members.sum(dim=1)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        counts = f"{int(self.members.sum())} classes given, {int(self.proven.sum())} proven"
        return f"TopClasses({len(self)} images, {counts})"


def top_classes(scores: IntegerScores, best: int, masks: Regions, covers: Tensor | None) -> TopClasses:
    """The sets of images [b k i j]; `covers` says which masks hold each region of a smaller threat."""
    count, classes = scores.values.shape[:2]
    if type(best) is not int or not 1 <= best < classes:
        raise UsageError(f"The number of best classes must be 1 to {classes - 1}, but is {best!r:.40}.")
    if classes <= FEW:
        return searched(scores, best, masks, covers)
    members, proven = (torch.zeros(count, classes, dtype=torch.bool, device=masks.sizes.device) for _ in range(2))
    for images, few in alike(needed(scores, best, masks)):
        found = searched(scores.part((images[:, None], few)), best, masks, covers)
        members[images[:, None], few], proven[images[:, None], few] = found.members, found.proven
    return TopClasses(members, proven)


def needed(scores: IntegerScores, best: int, masks: Regions) -> Tensor:
    """Bool [b k]: the classes that may be among the best somewhere; at least one more than `best`.

    Count from the image's least score, so that nothing is negative. The k classes with the largest plain sums keep at
    least `floor` outside any two masks, by their lowest scores. A class with a smaller sum, even by its highest scores,
    has k classes above it everywhere. So it is never among the best; and if it is above another class, so are those k,
    without whose help that other class is not among the best either.
    """
    order = sums(scores.values).argsort(descending=True)[:, : best + 1]
    kept = [sums(own(scores.low, each)) - 2 * heaviest_mask(scores, each, masks) for each in order[:, :best].unbind(1)]
    floor = torch.stack(kept).amin(dim=0)
    return (sums(scores.high) >= floor[:, None]).scatter(1, order, True)


def searched(scores: IntegerScores, best: int, masks: Regions, covers: Tensor | None) -> TopClasses:
    """The sets, by bounds where they settle it and by all pairs of masks elsewhere."""
    may, must = bounded(scores.values, scores.values, best, masks, lowest_first=True)
    members = must.any(dim=2)
    asked = probed(scores.values, scores.values, best, masks, may & ~members[:, :, None], lowest_first=True)
    members |= by_pairs(scores.values, scores.values, best, masks, asked, lowest_first=True).any(dim=2)

    may, must = bounded(scores.low, scores.high, best, masks)
    asked = may & ~must & held_everywhere(may, covers)[:, :, None]
    asked = probed(scores.low, scores.high, best, masks, asked)
    asked &= held_everywhere(asked | must, covers)[:, :, None]
    must |= by_pairs(scores.low, scores.high, best, masks, asked)
    return TopClasses(filled(members, sums(scores.values), best), held_everywhere(must, covers))


def bounded(
    mine: Tensor, theirs: Tensor, best: int, masks: Regions, lowest_first: bool = False
) -> tuple[Tensor, Tensor]:
    """Bool [b k n], twice: the classes that may, and those that must be among the best with every second mask.

    With the second mask equal to the first they must be among the best already. A second mask takes at most the
    heaviest mask of Δ⁺ from a lead.
    """
    left, others = outside(mine, masks), outside(theirs, masks)
    must = torch.empty_like(left, dtype=torch.bool)
    for label in range(left.shape[1]):
        heaviest = masks.sums((mine[:, label, None] - theirs).clamp(min=0)).amax(dim=2, keepdim=True)
        passing = left[:, label, None] - others <= heaviest
        passing[:, label] = False
        must[:, label] = passing.sum(dim=1) < best
    return among_best(left, others, best, lowest_first), must


PROBES = 3  # heavy second masks tried before all of them


def probed(
    mine: Tensor, theirs: Tensor, best: int, masks: Regions, asked: Tensor, lowest_first: bool = False
) -> Tensor:
    """What is asked, [b k n], without the first masks under which a heavy second one puts the class behind already.

    One row of sums holds the pairs of the heavy mask with all others: as its second masks, or as the first ones.
    """
    asked = asked.clone()
    image, label = asked.any(dim=2).nonzero(as_tuple=True)
    for part in pieces(len(image), masks, mine.device, width=mine.shape[1]):
        of, which = image[part], label[part]
        heavy = outside(mine[of, which], masks).argmin(dim=1)
        for _ in range(PROBES):
            left = outside_pairs(mine[of], heavy, masks)
            others = left if theirs is mine else outside_pairs(theirs[of], heavy, masks)
            asked[of, which] &= own(among_best(left, others, best, lowest_first), which)
            lead = own(left, which)[:, None] - others  # r k n
            behind = lead.sort(dim=1).values[:, best]  # the class itself is one of those that do not lead
            heavy = behind.argmin(dim=1)
    return asked


def by_pairs(
    mine: Tensor, theirs: Tensor, best: int, masks: Regions, asked: Tensor, lowest_first: bool = False
) -> Tensor:
    """Of the classes and first masks asked for, [b k n], those that are among the best with every second mask."""
    held = torch.zeros_like(asked)
    image, first = asked.any(dim=1).nonzero(as_tuple=True)
    for part in pieces(len(image), masks, mine.device, width=mine.shape[1]):
        of, one = image[part], first[part]
        left = outside_pairs(mine[of], one, masks)
        others = left if theirs is mine else outside_pairs(theirs[of], one, masks)
        held[of, :, one] = among_best(left, others, best, lowest_first).all(dim=2)
    return held & asked


def among_best(mine: Tensor, theirs: Tensor, best: int, lowest_first: bool) -> Tensor:
    """From sums [b k n]: do fewer than `best` others reach each class? Bool [b k n].

    Another class reaches it with an equal sum; with `lowest_first`, only if its index is lower.
    """
    found = torch.empty_like(mine, dtype=torch.bool)
    for label in range(mine.shape[1]):
        own_sum = mine[:, label, None]
        reached = theirs >= own_sum
        if lowest_first:
            reached[:, label:] = theirs[:, label:] > own_sum
        reached[:, label] = False
        found[:, label] = reached.sum(dim=1) < best
    return found


def held_everywhere(held: Tensor, covers: Tensor | None) -> Tensor:
    """From what holds under each mask, [b k n]: does each region lie inside such a mask? Bool [b k]."""
    if covers is None:
        return held.all(dim=2)
    return (held.double() @ covers.T.double() > 0).all(dim=2)


def filled(members: Tensor, totals: Tensor, best: int) -> Tensor:
    """The sets [b k] with at least `best` classes each: the largest plain sums fill up those that have fewer."""
    rank = totals.argsort(descending=True, stable=True).argsort()
    first = torch.where(members, rank - members.shape[1], rank).argsort()[:, :best]
    return members.scatter(1, first, True)
