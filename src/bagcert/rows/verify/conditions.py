"""Each rule's prediction and condition, straight from its definition, for one image.

Scores are whole numbers in float64 [k i j], so sums are exact. Each function returns the class that the rule predicts,
and what is left of the lead of the class that a row *claims* after the worst attack: certified when it is above 0.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bagcert.rows.verify.painted import Flags
from bagcert.rows.verify.reach import Floats, Reach
from bagcert.rows.verify.several import (
    AT_ONCE,
    largest_reach,
    lead_of_sums,
    lead_of_unions,
    leads_outside_pairs,
    unions_consistent,
)

Bounds = tuple[int, int]  # of the scores


@dataclass(frozen=True, eq=False)
class Finding:
    """What the scores of one image say."""

    predicted: int
    lead: int
    robust: Flags | None = None  # [n] the masks under which the proof holds: of two-mask, with every second mask
    split: bool = False  # unanimous: views are all for different classes, so that no proof holds
    alert: bool | None = None  # None if the rule raises none
    detectable: bool | None = None


def totals(scores: Floats) -> Floats:
    sums: Floats = scores.sum(axis=(1, 2))
    return sums


def rivals(scores: Floats, claimed: int) -> Floats:
    return np.delete(scores, claimed, axis=0)


def largest_region(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: Bounds) -> Finding:
    """Condition 3.3: the lead must exceed what the largest region can change, twice."""
    sums = totals(scores)
    lead = sums[claimed] - np.delete(sums, claimed).max() - 2 * (bounds[1] - bounds[0]) * largest_reach(reach)
    return Finding(int(sums.argmax()), int(lead))


def every_region(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: Bounds) -> Finding:
    """Condition 3.2: outside each region the lead must exceed the region's size."""
    sums = totals(scores)
    if reach.count > 1:
        return Finding(int(sums.argmax()), lead_of_sums(scores, claimed, reach, bounds[1] - bounds[0]))
    outside = sums[:, None] - reach.inside(scores)  # k n
    leads = outside[claimed] - rivals(outside, claimed).max(axis=0) - (bounds[1] - bounds[0]) * reach.sizes()
    return Finding(int(sums.argmax()), int(leads.min()))


def masked(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: Bounds) -> Finding:
    """PatchGuard with T = 0: every class loses its heaviest mask.

    Against a patch that reaches v, a rival keeps at most its sum outside v; the claimed class keeps at least its sum
    outside v less the heaviest rest of any mask.
    """
    sums = totals(scores)
    kept = sums - masks.inside(scores).max(axis=1)
    outside = sums[:, None] - reach.inside(scores)  # k v
    attacked = reach.masks()
    losses = [float(masks.inside(scores[claimed] * ~mask).max()) for mask in attacked]
    leads = outside[claimed] - np.maximum(losses, 0) - rivals(outside, claimed).max(axis=0)
    return Finding(int(kept.argmax()), int(leads.min()))


def two_mask(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: Bounds) -> Finding:
    """Every pair of masks: a class is consistent if it wins, under some first mask, with every second one.

    With masks for two patches at once, unions of two masks take the place of one.
    """
    if masks.count == 2:
        consistent = unions_consistent(scores, masks)
        assert len(consistent) <= 1, "two consistent classes"
        predicted = consistent.pop() if consistent else int(totals(scores).argmax())
        return Finding(predicted, lead_of_unions(scores, claimed, masks))
    firsts = masks.masks()
    step = max(1, AT_ONCE // scores.size)
    consistent, least, robust = set[int](), np.inf, np.zeros(len(firsts), dtype=bool)
    for start in range(0, len(firsts), step):
        rest = scores[None] * ~firsts[start : start + step, None]  # first k i j
        left = rest.sum(axis=(2, 3))[:, :, None] - masks.inside(rest)  # first k second
        winners = left.argmax(axis=1)  # the lowest class on ties
        consistent |= set(winners[(winners == winners[:, :1]).all(axis=1), 0].tolist())
        leads = left[:, claimed] - np.delete(left, claimed, axis=1).max(axis=1)  # first second
        least = min(least, leads.min())
        robust[start : start + step] = (leads > 0).all(axis=1)
    assert len(consistent) <= 1, "two consistent classes"
    return Finding(consistent.pop() if consistent else int(totals(scores).argmax()), int(least), robust)


def with_alerts(finding: Finding, scores: Floats, claimed: int, reach: Reach, masks: Reach, above: int) -> Finding:
    """The finding with the alert: outside some mask another class leads the claimed one by more than `above`.

    Detectable: each region lies inside a mask outside which the claimed class leads all others by more than that. With
    masks for two patches at once, unions of two masks take the place of one, and it must lead outside all of them.
    """
    if masks.count == 2:
        least = leads_outside_pairs(scores, claimed, masks).min()
        return replace(finding, alert=bool(least < -above), detectable=bool(least > above))
    leads = single_leads(scores, claimed, masks)
    alert = bool((leads < -above).any())
    return replace(finding, alert=alert, detectable=not alert and covered(reach, masks, leads > above))


def detect(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: Bounds, above: int = 0) -> Finding:
    """Plain sums, one mask at a time; the lead counts from the threshold, and an alert leaves the least of all.

    With masks for two patches at once, unions of two masks take the place of one.
    """
    if masks.count == 2:
        least = int(leads_outside_pairs(scores, claimed, masks).min())
        return Finding(int(totals(scores).argmax()), least - above)
    leads = single_leads(scores, claimed, masks)
    alert = bool((leads < -above).any())
    held = np.where(reach.within(masks), leads, -np.inf).max(axis=1)
    lead = int(leads.min() if alert else held.min()) - above
    return Finding(int(totals(scores).argmax()), lead, (leads > above) & (not alert))


def single_leads(scores: Floats, claimed: int, masks: Reach) -> Floats:
    """The lead of the claimed class over the best other one outside each mask, [n]."""
    outside = totals(scores)[:, None] - masks.inside(scores)  # k n
    leads: Floats = outside[claimed] - rivals(outside, claimed).max(axis=0)
    return leads


def covered(reach: Reach, masks: Reach, kept: Flags) -> bool:
    """Does each region lie inside one of the masks that are kept?"""
    return bool((reach.within(masks) & kept).any(axis=1).all())


def unanimous(scores: Floats, claimed: int, blind: Flags, most: int) -> Finding:
    """Views [i j] that are all for one class decide; at each placement one that is blind to it must be for the class.

    `blind` [n i j] says which views see nothing of which placement. The last view sees everything, and answers if no
    view is all for one class.
    """
    full = scores == most  # k i j
    agreed = sorted({int(found) for found in np.nonzero(full)[0]})
    predicted = agreed[0] if agreed else int(scores[:, -1, -1].argmax())
    witnesses = (blind & full[claimed]).sum(axis=(1, 2))
    return Finding(predicted, int(witnesses.min()), split=len(agreed) > 1)


class Condition(NamedTuple):
    """From scores, the claimed class, what the patch reaches, the rule's masks and the scores' bounds to a finding."""

    find: Callable[..., Finding]
    masks: bool = False  # it says nothing of patches that reach beyond a mask
    patches: int = 1  # at once, at most
    signed: bool = True  # scores may lie below 0
    alerts: bool = False  # it may be written with a threshold, as in two-mask:40
    detects: bool = False  # it promises the class or an alert, always has a threshold, and takes it after the bounds


# By the names that rules have in rows.
CONDITIONS = {
    "largest-region": Condition(largest_region, patches=9),
    "every-region": Condition(every_region, patches=9),
    "masked": Condition(masked, masks=True, signed=False),
    "two-mask": Condition(two_mask, masks=True, patches=2, alerts=True),
    "detect": Condition(detect, masks=True, patches=2, alerts=True, detects=True),
}
VIEW_CONDITIONS = {"unanimous": unanimous}
