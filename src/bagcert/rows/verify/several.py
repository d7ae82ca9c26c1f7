"""Several patches at once: the conditions of the rules that know them, straight from their definitions.

Scores are whole numbers in float64 [k i j], as for one patch.
"""

import numpy as np

from bagcert.rows.verify.painted import Flags
from bagcert.rows.verify.reach import Floats, Reach

AT_ONCE = 2**17  # scores of masked copies held at a time: more than a cache holds takes several times as long


def largest_reach(reach: Reach) -> int:
    """The most outputs that two patches reach together; of more, no more than each on its own, or all."""
    if reach.count != 2:
        return int(min(reach.count * reach.sizes().max(), reach.masks()[0].size))
    return max(int((first | reach.masks()).sum(axis=(1, 2)).max()) for first in reach.masks())


def lead_of_sums(scores: Floats, claimed: int, reach: Reach, width: int) -> int:
    """Σ Δ less the most of Δ + width that the patches reach together, over all rivals."""
    delta = scores[claimed] - np.delete(scores, claimed, axis=0)  # rivals i j
    weights = delta + width
    if reach.count == 2:
        most = np.zeros(len(delta))
        for first in reach.masks():
            second = reach.inside(weights * ~first).max(axis=1)
            most = np.maximum(most, (weights * first).sum(axis=(1, 2)) + second)
    else:
        most = reach.count * reach.inside(weights).max(axis=1)
    return int((delta.sum(axis=(1, 2)) - most).min())


def leads_outside_pairs(scores: Floats, claimed: int, masks: Reach) -> Floats:
    """The least lead of the claimed class over any other outside each first mask and any second one, [n]."""
    delta = scores[claimed] - np.delete(scores, claimed, axis=0)  # rivals i j
    rests = (delta * ~first for first in masks.masks())
    return np.array([(rest.sum(axis=(1, 2)) - masks.inside(rest).max(axis=1)).min() for rest in rests])


def unions(masks: Reach, cells: int) -> "list[Flags]":
    """Every union of two masks once, as bool [q i j], in pieces of so many cells or less."""
    each = masks.masks()
    step = max(1, AT_ONCE // cells)
    return [
        first | each[start : start + step]
        for place, first in enumerate(each)
        for start in range(place, len(each), step)
    ]


def margins(scores: Floats, mine: int, taken: Flags, masks: Reach) -> Floats:
    """What two more masks of the heaviest kind leave of each lead of a class outside unions [q i j]: [q rivals]."""
    delta = (scores[mine] - np.delete(scores, mine, axis=0)) * ~taken[:, None]  # q rivals i j
    left: Floats = delta.sum(axis=(2, 3)) - 2 * masks.inside(delta.clip(min=0)).max(axis=2)
    return left


def unions_consistent(scores: Floats, masks: Reach) -> set[int]:
    """The classes, other than the plain argmax, that a union makes consistent: ahead of all rivals by the margin."""
    plain = int(scores.sum(axis=(1, 2)).argmax())
    found = set[int]()
    for taken in unions(masks, scores.size):
        left = (scores * ~taken[:, None]).sum(axis=(2, 3))  # q k
        for mine in set(left.argmax(axis=1).tolist()) - {plain}:
            ahead = (left[:, [mine]] > np.delete(left, mine, axis=1)).all(axis=1)
            if ahead.any() and (margins(scores, mine, taken[ahead], masks) > 0).all(axis=1).any():
                found.add(mine)
    return found


def lead_of_unions(scores: Floats, claimed: int, masks: Reach) -> int:
    """The least margin of the claimed class over all unions and rivals.

    The heaviest mask outside a union is no heavier than the heaviest of the whole map. So a union that would leave more
    than the least known even so need not be looked at closely.
    """
    delta = scores[claimed] - np.delete(scores, claimed, axis=0)
    heaviest = masks.inside(delta.clip(min=0)).max(axis=1)  # rivals
    least = np.inf
    for taken in unions(masks, scores.size):
        bound = ((delta * ~taken[:, None]).sum(axis=(2, 3)) - 2 * heaviest).min(axis=1)
        close = bound < least
        if close.any():
            least = min(least, margins(scores, claimed, taken[close], masks).min())
    return int(least)
