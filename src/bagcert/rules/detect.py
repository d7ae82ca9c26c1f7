"""The plain answer or an alert: what one mask at a time can prove."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from bagcert.rules.alerts import find_alerts, find_pair_alerts, held_leads, least_over_rivals, need_threshold
from bagcert.rules.certificate import Certificate, own
from bagcert.rules.masking_rule import MaskingRule, heaviest_mask, needed_cover
from bagcert.rules.pairs import pair_leads
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.threats import Regions


@final
@dataclass(frozen=True, eq=False)
class Detect(MaskingRule):
    """Argmax of the sums, with an alert if outside some mask another class leads it by more than t = `alert_above`.

    Certificate:   Σ_{outside m} Δ_c > t   for all masks m and all c ≠ ŷ

    Whatever the patch, the prediction is ŷ or an alert is raised (`detectable`); `bagcert.rules.alerts` has the proof.
    The prediction itself may change, so no image is `certified`. No bound on the scores is used.

    A plain argmax that `two-mask` certifies is detectable for t = 0, since a pair may hold the same mask twice. If
    `two-mask` certifies another class, this rule raises an alert.

    Against two patches at once the masks are the unions of two. Then the condition for t = 0 is the one by which
    `two-mask` certifies one patch.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> certificate = bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=bagcert.Detect(10))
    >>> certificate.alert.tolist(), certificate.detectable.tolist(), certificate.lead.tolist()
    ([False], [True], [38])
    """

    alert_above: int = 0
    masks: Regions | None = None
    name: ClassVar[str] = "detect"
    patches: ClassVar[int] = 2
    detects: ClassVar[bool] = True

    def __post_init__(self) -> None:
        need_threshold(self.alert_above)

    def alerting(self, above: int) -> "Detect":
        return replace(self, alert_above=above)

    def proven(self, certificate: Certificate) -> Tensor:
        assert certificate.detectable is not None
        return certificate.detectable

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """What is left of Σ Δ outside the region, or it and any second one, above the threshold."""
        masks = self.masks_for(regions)
        if masks.count == 2:
            return pair_leads(scores, classes, regions, masks, rival, self.alert_above)
        leads = own(outside(scores.low, regions), classes)[:, None] - outside(scores.high, regions)
        return rivals_only(leads.long() - self.alert_above, classes)

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        masks = self.masks_for(regions)
        covers = needed_cover(regions, masks)
        predicted = self._predict(scores, regions)
        if masks.count == 2:
            return self._certify_pairs(scores, predicted, masks, exact)
        remaining = outside(scores.values, masks)  # b k n
        leads = own(remaining, predicted)[:, None] - remaining
        seen = sure = least_over_rivals(leads, predicted)
        if scores.guarded:
            leads = own(outside(scores.low, masks), predicted)[:, None] - outside(scores.high, masks)
            sure = least_over_rivals(leads, predicted)
        raised, detectable = find_alerts(seen, sure, self.alert_above, covers)
        found = Certificate(predicted, torch.zeros_like(raised), alert=raised, detectable=detectable)
        return replace(found, **self._weakest(leads, sure, raised, regions, covers)) if exact else found

    def _certify_pairs(self, scores: IntegerScores, predicted: Tensor, masks: Regions, exact: bool) -> Certificate:
        alerts, weakest = find_pair_alerts(scores, predicted, masks, self.alert_above)
        found = Certificate(
            predicted, torch.zeros_like(alerts.raised), alert=alerts.raised, detectable=alerts.detectable
        )
        if not exact:
            return found
        return replace(
            found,
            lead=weakest.left.long() - self.alert_above,
            weakest_region=masks.placements[weakest.first],
            second_region=masks.placements[weakest.second],
            weakest_class=weakest.rival,
        )

    def _weakest(
        self, leads: Tensor, sure: Tensor, raised: Tensor, regions: Regions, covers: Tensor | None
    ) -> dict[str, Any]:
        """Lead, region and rival; of an alerted image those of the mask that leaves least, whatever it covers."""
        everyone = torch.arange(len(sure), device=sure.device)
        held, mask = held_leads(sure, covers)
        place = held.argmin(dim=1)
        chosen = torch.where(raised, sure.argmin(dim=1), mask[everyone, place])
        lead, rival = leads[everyone, :, chosen].min(dim=1)
        return {
            "lead": lead.long() - self.alert_above,
            "weakest_region": regions.placements[place],
            "weakest_class": rival,
        }

    def _needed(self, scores: IntegerScores, regions: Regions, exact: bool) -> Tensor | None:
        """The classes whose sum reaches what the plain argmax p keeps outside any mask, less t: p and few others.

        Count from the image's least score, so that nothing is negative. A class with a smaller sum, even by its highest
        scores, trails p, by its lowest, by more than t outside every mask. So it neither raises the alert nor stands in
        the way of a proof. But the lead over it may be the least one: if the lead is asked for, all stay.
        """
        if exact or self.masks_for(regions).count == 2:
            return None
        plain = self._predict(scores, regions)
        floor = sums(own(scores.low, plain)) - heaviest_mask(scores, plain, self.masks_for(regions)) - self.alert_above
        return sums(scores.high) >= floor[:, None]
