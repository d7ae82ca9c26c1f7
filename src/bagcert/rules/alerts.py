"""Alerts of rules with masks: outside some mask another class leads the predicted one.

Inference. Let ŷ be the prediction, made in whatever way. An alert is raised if a mask m and a class c have

    Σ_{outside m} (s_c - s_ŷ) > t

Detectable:   Σ_{outside m} Δ_c > t   for all masks m and all c ≠ ŷ

It says that, whatever the patch, the prediction is ŷ or an alert is raised.

Proof. Let the patch sit at l, with R(l) inside mask m. Outside m all scores are clean, so there ŷ leads every other
class by more than t, whatever the patch holds. If the attacked prediction is c ≠ ŷ, then outside m another class than
the predicted one, ŷ, leads it by more than t. That raises the alert.

Against two patches at once the same holds with the union M of any two masks in place of m, also of one mask twice. The
patches sit at l1 and l2, with R(l1) and R(l2) inside two masks; outside their union all scores are clean, and the proof
goes on as above. Of all unions only the one that leaves least is looked for (`bagcert.rules.pairs`): it decides both.

Masks built for a larger threat prove a smaller one if each of its regions lies inside some mask m for which the
condition holds, by the same proof. With masks for two patches at once, every smaller threat is proven if that one is.

Nothing says that there will be no alert: an attacker can always provoke an alert. Since t >= 0, an image that meets the
condition for all masks raises none. Of an alerted image no answer is used, so it is never called detectable. A larger t
means fewer alerts and fewer detectable images.

A guard band widens the condition as for every rule: `low` for ŷ, `high` for its rivals. If the program's scores lie
anywhere inside the band, ŷ still leads outside m by more than t, and the proof goes through.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.certificate import own
from bagcert.rules.pairs import Weakest, weakest_pair
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import IntegerScores, outside
from bagcert.threats import Regions

MOST = 2**53  # no sum of scores is larger


class Alerts(NamedTuple):
    """What a rule says of each image, bool [b]."""

    raised: Tensor
    detectable: Tensor


def need_threshold(above: int | None) -> None:
    """Refuse what is no threshold; None is no alerts at all."""
    if above is not None and (type(above) is not int or not 0 <= above <= MOST):
        raise UsageError(f"The threshold of an alert must be a whole number of score units >= 0, but is {above}.")


def least_over_rivals(leads: Tensor, predicted: Tensor) -> Tensor:
    """The least of the leads [b k n] under each mask, [b n]; the leads are overwritten."""
    return rivals_only(leads, predicted).amin(dim=1)


def find_alerts(seen: Tensor, sure: Tensor, above: int, covers: Tensor | None) -> Alerts:
    """From the least leads of ŷ outside each mask, [b n]: by the scores as they are, and as the guard band allows."""
    above = min(above, torch.iinfo(seen.dtype).max)
    raised = (seen < -above).any(dim=1)
    return Alerts(raised, (held_leads(sure, covers)[0] > above).all(dim=1) & ~raised)


def find_pair_alerts(scores: IntegerScores, predicted: Tensor, masks: Regions, above: int) -> tuple[Alerts, Weakest]:
    """Alerts about two patches at once, and the union of two masks that leaves least of the lead, of all there are."""
    seen = sure = weakest_pair(own(scores.values, predicted)[:, None] - scores.values, predicted, masks)
    if scores.guarded:
        sure = weakest_pair(own(scores.low, predicted)[:, None] - scores.high, predicted, masks)
    return find_alerts(seen.left[:, None], sure.left[:, None], above, None), sure


def least_lead(values: Tensor, predicted: Tensor, masks: Regions) -> Tensor:
    """The least lead of each prediction outside any mask or union, [b]; an alert above t is raised below -t."""
    if masks.count == 2:
        return weakest_pair(own(values, predicted)[:, None] - values, predicted, masks).left
    remaining = outside(values, masks)
    return least_over_rivals(own(remaining, predicted)[:, None] - remaining, predicted).amin(dim=1)


def held_leads(under: Tensor, covers: Tensor | None) -> tuple[Tensor, Tensor]:
    """What the best mask that covers each region leaves of `under` [b n], and which mask that is: two [b regions]."""
    if covers is None:
        return under, torch.arange(under.shape[1], device=under.device).expand_as(under)
    held = torch.where(covers, under[:, None], torch.iinfo(under.dtype).min).max(dim=2)
    return held.values, held.indices
