"""Double masking on the score map: the class that wins under one mask, whatever second mask is added."""

from dataclasses import dataclass, replace
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules import two_patches
from bagcert.rules.alerts import find_alerts, find_pair_alerts, least_over_rivals, need_threshold
from bagcert.rules.certificate import Certificate, own
from bagcert.rules.masking_rule import (
    MaskingRule,
    heaviest_mask,
    least_pairs,
    needed_cover,
    outside_pairs,
    pieces,
)
from bagcert.rules.pairs import floors, pair_leads, weakest_pair, weakest_second
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.rules.top_classes import TopClasses, top_classes
from bagcert.threats import Regions


@final
@dataclass(frozen=True, eq=False)
class TwoMask(MaskingRule):
    """The consistent class under the masks, certified if it wins under every pair of masks.

    Inference. A class is *consistent* if there is a mask under which it wins whatever second mask is added (winning is
    the argmax of the sums outside both, the lowest index on ties). Two classes cannot both be consistent: with the
    masks m1 and m2, both would have to win under the pair (m1, m2). Predict the consistent class if there is one, else
    the plain argmax.

    Certificate:   Σ_{outside m1 ∪ m2} Δ_c > 0   for all masks m1, m2 and all c ≠ ŷ

    Proof. Let the patch sit at l, with R(l) inside mask m. A pair that contains m sees only clean scores, so by the
    condition ŷ wins under every such pair. So m makes ŷ consistent, hence the only consistent class, hence the
    prediction. No bound on the scores is used.

    The masks are part of the inference. By default they are the maximal regions of the threat. Masks built for a larger
    threat are given as `masks`; a smaller threat is then certified if each of its regions lies inside some mask m under
    which ŷ wins with every second mask, by the same proof. Adding smaller masks makes another rule.

    Against two patches at once the unions of two masks are taken away: another inference with a certificate of its own
    (`bagcert.rules.two_patches`). Every smaller threat is certified if that one is.

    `every-region` implies this certificate: for |R1| >= |R2| Condition 3.2 gives, on 0/1 votes,
    Σ_{outside both} Δ = Σ_{outside R1} Δ - Σ_{R2 \\ R1} Δ > |R1| - |R2 \\ R1| >= 0.

    With `alert_above` it raises alerts as well (`bagcert.rules.alerts`). They change neither class nor certificate. A
    certified image raises none under its own masks: a pair may hold the same mask twice, so ŷ wins under every one.
    Against two patches f(M) > 0 says that ŷ wins outside every union M.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=bagcert.TwoMask())
    Certificate(class 2, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    """

    masks: Regions | None = None
    alert_above: int | None = None
    name: ClassVar[str] = "two-mask"
    patches: ClassVar[int] = 2

    def __post_init__(self) -> None:
        need_threshold(self.alert_above)

    def alerting(self, above: int) -> "TwoMask":
        return replace(self, alert_above=above)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """The least Σ Δ outside the region and any second mask; of one `rival` alone in a k-th of the time.

        Against two patches these are the two, and what more masks could take is left out.
        """
        return pair_leads(scores, classes, regions, self.masks_for(regions), rival)

    @torch.no_grad()
    def certify_top(self, scores: IntegerScores, best: int, regions: Regions) -> TopClasses:
        """The classes that are among the `best` ones, as a set that may be larger: `bagcert.rules.top_classes`."""
        regions = self._fitting(scores, regions)
        masks = self.masks_for(regions)
        if masks.count > 1:
            raise UsageError("Sets of classes are proven against one patch, not two at once. Give another threat.")
        covers = needed_cover(regions, masks)
        found = [top_classes(part, best, masks, covers) for part in self._parts(scores, regions)]
        return TopClasses(torch.cat([each.members for each in found]), torch.cat([each.proven for each in found]))

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        masks = self.masks_for(regions)
        if masks.count == 2:
            return two_patches.consistent_class(scores.values, masks)
        return consistent_class(scores.values, outside(scores.values, masks), masks)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        masks = self.masks_for(regions)
        covers = needed_cover(regions, masks)
        if masks.count == 2:
            predicted = two_patches.consistent_class(scores.values, masks)
            found = two_patches.certificate(scores, predicted, masks, exact)
            if self.alert_above is None:
                return found
            raised, detectable = find_pair_alerts(scores, predicted, masks, self.alert_above)[0]
            return replace(found, alert=raised, detectable=detectable)
        remaining = outside(scores.values, masks)  # b k n
        predicted = consistent_class(scores.values, remaining, masks)
        if scores.guarded:
            leads = own(outside(scores.low, masks), predicted)[:, None] - outside(scores.high, masks)
        else:
            leads = own(remaining, predicted)[:, None] - remaining
        leads = rivals_only(leads, predicted)
        under = leads.amin(dim=1)  # b n: what each first mask leaves, with the second equal to the first
        if exact:
            found = exact_certificate(scores, predicted, leads, under, masks, regions, covers)
        else:
            found = Certificate(predicted, decide(scores, predicted, leads, under, masks, covers))
        if self.alert_above is None:
            return found
        seen = sure = under
        if scores.guarded:
            seen = least_over_rivals(own(remaining, predicted)[:, None] - remaining, predicted)
        raised, detectable = find_alerts(seen, sure, self.alert_above, covers)
        return replace(found, alert=raised, detectable=detectable)

    def _needed(self, scores: IntegerScores, regions: Regions, exact: bool) -> Tensor | None:
        """The classes whose sum reaches what the plain argmax p keeps outside any two masks: p and few others.

        Count from the image's least score, so that nothing is negative. A class with a smaller sum, even by its highest
        scores, loses to p, by its lowest, outside every pair of masks. So it is neither the plain argmax nor ever a
        winner, and no prediction changes without it. If ŷ beats p outside a pair, it beats such a class there too, so
        no certificate changes either. But the lead over it may be the least one: if the lead is asked for, all stay.

        With alerts the class must also trail p by more than t outside every mask. If it leads ŷ there, p leads ŷ by
        more, so it makes no difference to the alert; if ŷ leads p there by more than t, it leads this class by more.
        """
        if exact or self.masks_for(regions).count == 2:
            return None
        plain = sums(scores.values).argmax(dim=1)
        heaviest = heaviest_mask(scores, plain, self.masks_for(regions))
        floor = sums(own(scores.low, plain)) - heaviest - heaviest.clamp(min=self.alert_above or 0)
        return sums(scores.high) >= floor[:, None]


def consistent_class(values: Tensor, remaining: Tensor, masks: Regions) -> Tensor:
    """The prediction [b], given the sums outside each mask, [b k n].

    Only a mask under which another class than the plain argmax wins can make another class consistent, so only those
    masks are tried. Each challenger must first beat the plain argmax, which needs one map, not k.
    """
    plain = sums(values).argmax(dim=1)
    winners = remaining.argmax(dim=1)  # b n
    image, first = (winners != plain[:, None]).nonzero(as_tuple=True)
    challenger = winners[image, first]
    beats = torch.empty_like(image, dtype=torch.bool)
    for part in pieces(len(image), masks, values.device):
        of, rival = image[part], challenger[part]
        duel = outside_pairs(values[of, rival] - values[of, plain[of]], first[part], masks).amin(dim=1)
        beats[part] = (duel > 0) | ((duel == 0) & (rival < plain[of]))
    image, first, challenger = image[beats], first[beats], challenger[beats]
    predicted = plain.clone()
    for part in pieces(len(image), masks, values.device, width=values.shape[1]):
        always = outside_pairs(values[image[part]], first[part], masks).argmax(dim=1) == challenger[part][:, None]
        stays = always.all(dim=1)
        predicted[image[part][stays]] = challenger[part][stays]
    return predicted


def decide(
    scores: IntegerScores, predicted: Tensor, leads: Tensor, under: Tensor, masks: Regions, covers: Tensor | None
) -> Tensor:
    """Is each image certified? Stops early: one mask alone fails, no second mask can matter, a greedy pair fails."""
    robust = under > 0  # b n: does ŷ win under this mask with every second one, as far as is known?
    image, rival = doubtful(scores, predicted, leads, masks, provable(robust, covers)).nonzero(as_tuple=True)
    delta = own(scores.low, predicted)[image] - scores.high[image, rival]  # p i j, one for each doubtful rival
    shaky = floors(delta, leads[image, rival], masks) <= 0  # p n

    row = shaky.any(dim=1).nonzero().flatten()
    first = leads[image[row], rival[row]].argmin(dim=1)
    lost = least_pairs(delta, row, first, masks) <= 0
    robust[image[row[lost]], first[lost]] = False

    shaky &= provable(robust, covers)[image, None]
    row, first = shaky.nonzero(as_tuple=True)
    lost = least_pairs(delta, row, first, masks) <= 0
    robust[image[row[lost]], first[lost]] = False
    return provable(robust, covers)


def doubtful(scores: IntegerScores, predicted: Tensor, leads: Tensor, masks: Regions, images: Tensor) -> Tensor:
    """Bool [b k]: the rivals of the given images that might win under some second mask.

    Δ⁺ is at most what ŷ scores above the least score of all, so one map per image rules out most rivals.
    """
    mine = own(scores.low, predicted)
    above = (mine - scores.high.amin()).clamp(min=0) if mine.numel() else mine
    heaviest = masks.sums(above).amax(dim=1)
    return (leads.amin(dim=2) <= heaviest[:, None]) & images[:, None]


def provable(robust: Tensor, covers: Tensor | None) -> Tensor:
    """Does every region lie inside a robust mask? [b]"""
    if covers is None:
        return robust.all(dim=1)
    return (robust.double() @ covers.T.double() > 0).all(dim=1)


def exact_certificate(
    scores: IntegerScores,
    predicted: Tensor,
    leads: Tensor,
    under: Tensor,
    masks: Regions,
    regions: Regions,
    covers: Tensor | None,
) -> Certificate:
    """Lead, weakest pair and weakest rival: the least over all pairs, with the best covering mask for each region."""
    delta = own(scores.low, predicted)[:, None] - scores.high
    if covers is None:
        lead, place, second, rival = weakest_pair(delta, predicted, masks, leads)
    else:
        below = rivals_only(floors(delta, leads, masks), predicted)
        image, rival, first = (below < under[:, None]).nonzero(as_tuple=True)
        least = least_pairs(delta.flatten(0, 1), image * delta.shape[1] + rival, first, masks)
        under = under.flatten().scatter_reduce(0, image * len(masks) + first, least, "amin").view_as(under)
        held = torch.where(covers, under[:, None], torch.iinfo(under.dtype).min).max(dim=2)  # b regions
        place = held.values.argmin(dim=1)
        mask = held.indices[torch.arange(len(place), device=place.device), place]
        lead, second, rival = weakest_second(delta, predicted, mask, masks)
    return Certificate(predicted, lead > 0, lead.long(), regions.placements[place], masks.placements[second], rival)
