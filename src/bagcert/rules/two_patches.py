"""`two-mask` against two patches at once: its inference, its certificate, and the search for both.

Notation: M is the union of two masks (any two, also one twice), Δ = s_y - s_c the lead of class y over a rival c at
each position, Δ⁺ = max(Δ, 0). What two more masks can take of that lead outside M is at most twice the heaviest one:

    f(M) = Σ_{outside M} Δ - 2 max_R Σ_{R outside M} Δ⁺

Inference. A class is *consistent* if there is an M with f(M) > 0 against every rival. Two classes a and b cannot both
be: if M makes a consistent and M' = R1 ∪ R2 makes b consistent, then outside M ∪ M' the lead of a over b is at least
Σ_{outside M} Δ - Σ_{R1 outside M} Δ⁺ - Σ_{R2 outside M} Δ⁺ >= f(M) > 0; and by the same argument the lead of b over a
is above 0 there. Predict the consistent class if there is one, else the plain argmax.

Certificate:   f(M) > 0   for all M and all rivals of ŷ

Proof. Let the patches sit at l1 and l2, with R(l1) and R(l2) inside two masks, whose union is M. Outside M all scores
are clean, and f(M) uses no others. So M makes ŷ consistent on the attacked image, too, and ŷ is predicted.

The inference against one patch does not do: with it, even Σ Δ > 4 max_R Σ_R Δ⁺ lets two patches change the class.
With a guard band, Δ counts its low end in the sum and its high end in Δ⁺, since f falls if Δ⁺ rises.
"""

import torch
from torch import Tensor

from bagcert.rules.certificate import Certificate, own
from bagcert.rules.masking_rule import outside_pairs, pieces
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.threats import Regions

PROBES = 3  # heavy regions tried before all of them


def without(maps: Tensor, taken: Tensor) -> Tensor:
    """Maps [r ... i j] with nothing in each row's mask [r i j]."""
    return maps.masked_fill(taken.view(len(taken), *[1] * (maps.dim() - 3), *taken.shape[1:]), 0)


def margins(delta: Tensor, gain: Tensor, taken: Tensor, masks: Regions) -> Tensor:
    """f(M) of rows [r ... i j], each with its M as a mask [r i j]; `gain` is Δ⁺."""
    return sums(without(delta, taken)) - 2 * masks.sums(without(gain, taken)).amax(dim=-1)


def consistent_class(values: Tensor, masks: Regions) -> Tensor:
    """The prediction [b]. Only another class than the plain argmax p can change it, so only those are looked for.

    Such a class y must lead p outside some M, so the two heaviest masks of what p is ahead by must exceed its lead.
    """
    predicted = sums(values).argmax(dim=1)
    ahead = own(values, predicted)[:, None] - values  # b k i j
    most = 2 * masks.sums(ahead.clamp(min=0)).amax(dim=2)
    for image, mine in (most > sums(ahead)).nonzero().tolist():
        pairs = promising(-ahead[image, mine], masks)
        delta = values[image, mine] - values[image]  # k i j
        for part in pieces(len(pairs), masks, values.device, width=2 * len(delta)):
            taken = masks.masks(pairs[part, 0]) | masks.masks(pairs[part, 1])
            rows = delta.expand(len(part), *delta.shape)
            left = rivals_only(margins(rows, rows.clamp(min=0), taken, masks), torch.full_like(part, mine))
            if bool((left > 0).all(dim=1).any()):
                predicted[image] = mine
    return predicted


def promising(delta: Tensor, masks: Regions) -> Tensor:
    """The pairs of masks, int64 [q 2], that may have f(M) > 0 for a map [i j] of Δ; no other has.

    What M leaves of any one region is at most what it leaves of the heaviest. So a few heavy regions rule out most M.
    """
    found = []
    for first in pieces(len(masks), masks, delta.device, width=2 * PROBES):
        rows = torch.where(masks.masks(first), 0, delta)
        left = outside(rows, masks)  # r n
        gain = rows.clamp(min=0)
        rest, floor = gain, torch.zeros_like(left)
        for _ in range(PROBES):  # the heaviest region, then the heaviest of the rest
            region = masks.masks(masks.sums(rest).argmax(dim=1))
            floor = torch.maximum(floor, outside(gain.masked_fill(~region, 0), masks))
            rest = rest.masked_fill(region, 0)
        row, second = (left > 2 * floor).nonzero(as_tuple=True)
        found.append(torch.stack([first[row], second], dim=1))
    pairs = torch.cat(found)
    return pairs[pairs[:, 0] <= pairs[:, 1]]


def certificate(scores: IntegerScores, predicted: Tensor, masks: Regions, exact: bool) -> Certificate:
    """The least f(M) over all M and rivals, and where it is; if not exact, only whether it is above 0."""
    delta = own(scores.low, predicted)[:, None] - scores.high
    gain = (own(scores.high, predicted)[:, None] - scores.low).clamp(min=0)
    images = zip(delta, gain, predicted.tolist(), strict=True)
    found = [least_margin(ahead, most, own_class, masks, exact) for ahead, most, own_class in images]
    lead, rival, first, second = torch.tensor(found, dtype=torch.int64, device=delta.device).view(-1, 4).unbind(dim=1)
    if not exact:
        return Certificate(predicted, lead > 0)
    return Certificate(predicted, lead > 0, lead, masks.placements[first], masks.placements[second], rival)


def least_margin(delta: Tensor, gain: Tensor, own_class: int, masks: Regions, exact: bool) -> tuple[int, int, int, int]:
    """For one image's maps [k i j]: the least f(M), its rival and its two masks; if not exact, any f(M) <= 0 will do.

    The heaviest region that a first mask leaves is no lighter than what M leaves, so it bounds f from below. Rows of a
    rival and a first mask are taken from the most promising on; those that cannot go below the least known are left.
    """
    left = outside(delta, masks)  # k n
    heaviest = masks.sums(gain).amax(dim=1, keepdim=True)
    taken = masks.sums(delta.clamp(min=0)).amax(dim=1, keepdim=True)
    bounds = rivals_only((left - taken - 2 * heaviest)[None], torch.tensor([own_class], device=delta.device))[0]
    order = bounds.flatten().argsort(stable=True)[: (len(delta) - 1) * len(masks)]
    best = (torch.iinfo(torch.int64).max, 0, 0, 0)
    for part in pieces(len(order), masks, delta.device, width=2):
        rows = order[part]
        if int(bounds.flatten()[rows[0]]) >= best[0] or (not exact and best[0] <= 0):
            break
        rival, first = rows // len(masks), rows % len(masks)
        pair_sums = outside_pairs(delta[rival], first, masks)  # r n
        limits = masks.sums(without(gain[rival], masks.masks(first))).amax(dim=1, keepdim=True)
        hopeful = (pair_sums - 2 * limits).long()  # compared with numbers that int32 does not hold
        best = min(best, least_of(delta, gain, rival, first, hopeful, masks, best, exact))
    return best


def least_of(
    delta: Tensor,
    gain: Tensor,
    rival: Tensor,
    first: Tensor,
    hopeful: Tensor,
    masks: Regions,
    best: tuple[int, int, int, int],
    exact: bool,
) -> tuple[int, int, int, int]:
    """The least f(M) of rows of a rival and a first mask, given a lower bound for each second mask [r n]."""
    lowest = hopeful.flatten().argsort(stable=True)
    for part in pieces(len(lowest), masks, delta.device, width=2):
        pairs = lowest[part]
        limit = best[0] if exact else min(best[0], 1)
        pairs = pairs[hopeful.flatten()[pairs] < limit]
        if not len(pairs):
            break
        row, second = pairs // len(masks), pairs % len(masks)
        mine, one = rival[row], first[row]
        values = margins(delta[mine], gain[mine], masks.masks(one) | masks.masks(second), masks)
        least = int(values.argmin())
        found = (int(values[least]), int(mine[least]), int(one[least]), int(second[least]))
        best = min(best, found)
        if not exact and best[0] <= 0:
            break
    return best
