"""Where to attack: the placements that a certificate finds weakest, and the rival that gains there."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.rules import IntegerScores, Masked, Rule, TwoMask, Unanimous
from bagcert.rules.masking import pieces
from bagcert.rules.rule import own, rivals_only
from bagcert.rules.sums import outside
from bagcert.scorers import Scorer
from bagcert.scorers.ablation import AblationScorer
from bagcert.scorers.views import HidingScorer
from bagcert.threats import Footprint, Regions, Threat
from bagcert.threats.regions import maximal_sets
from bagcert.threats.threat import RegionThreat


@dataclass(frozen=True, eq=False)
class Places:
    """The placements to choose from: what each reaches, and which pixels it may paint."""

    regions: Regions
    painted: Tensor | None  # bool [n h w] of regions of any form; None: the rectangles of `regions.placements`

    @staticmethod
    def of(threat: Threat, footprint: Footprint, every: bool) -> "Places":
        """Every placement, or those with a maximal footprint: the proof is nowhere weaker than at one of them.

        A patch at the border paints other pixels than the maximal one that reaches its outputs, so a full search has to
        try both.
        """
        regions = footprint.regions(threat)
        if isinstance(threat, RegionThreat):
            if every:
                return Places(regions, threat.masks)
            kept = maximal_sets(regions.masks().flatten(1))
            return Places(regions.maximal(), threat.masks[kept])
        return Places(regions if every else regions.maximal(), None)

    def to(self, device: torch.device) -> "Places":
        return Places(self.regions.to(device), None if self.painted is None else self.painted.to(device))

    def pixels(self, index: Tensor, image_size: tuple[int, int]) -> Tensor:
        """What the chosen placements may paint, bool [n h w]."""
        if self.painted is not None:
            return self.painted[index]
        rows, columns, heights, widths = self.regions.placements[index].unbind(dim=1)
        inside = []
        for start, length, size in ((rows, heights, image_size[0]), (columns, widths, image_size[1])):
            pixel = torch.arange(size, device=index.device)
            inside.append((pixel >= start[:, None]) & (pixel < (start + length)[:, None]))
        return inside[0][:, :, None] & inside[1][:, None, :]


def weakest_places(leads: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """From leads [b k n] over rivals, the `count` weakest placements of each image and their rivals: two [b count]."""
    lead, rival = leads.min(dim=1)
    place = lead.sort(dim=1, stable=True).indices[:, :count]
    return place, rival.gather(1, place)


def alike(scorer: Scorer) -> bool:
    """Do many placements reach the same scores? To columns all rows look alike, to views all patches behind a mask."""
    return isinstance(scorer, AblationScorer | HidingScorer)


def first_where_steep(leads: Tensor, gains: Tensor) -> Tensor:
    """Leads [b k n] in their order, of placements with equal leads those with the larger gain [b n] first; int64."""
    rank = gains.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    away = leads == torch.iinfo(leads.dtype).max  # what is no rival stays out of the way
    return torch.where(away, torch.iinfo(torch.int64).max, leads.long() * gains.shape[1] + rank[:, None])


def paper_leads(scores: IntegerScores, predicted: Tensor, regions: Regions) -> Tensor:
    """Σ_{(i,j) ∉ R(l)} Δ_c, [b k n]: App. A.2 starts where this is least.

    It argues with Δ = -1 in all of R(l), yet does not subtract the size of R(l): where footprints differ in size this
    is not the weakest placement of Condition 3.2.
    """
    left = outside(scores.values, regions)
    return rivals_only(own(left, predicted)[:, None] - left, predicted)


def proof_leads(rule: Rule, scores: IntegerScores, predicted: Tensor, rival: Tensor, regions: Regions) -> Tensor:
    """What each placement leaves of the proof of the predicted class over every rival, [b k n].

    The least entry is the certificate's lead: exactly for `every-region`, `masked` with T = 0 and `two-mask`. Where a
    certificate says nothing of placements, or is costly there, another order serves: `largest-region` and `monotone`
    take that of Condition 3.2, `masked` with T > 0 that of T = 0, `unanimous` that of `view_leads`, and `two-mask`
    knows one `rival` an image, its certificate's weakest class.
    """
    masks = rule.masks if isinstance(rule, Masked | TwoMask) and rule.masks is not None else regions
    if isinstance(rule, TwoMask):
        delta = own(scores.values, predicted) - own(scores.values, rival)  # b i j
        least = second_masks(delta, regions, masks)[0]
        leads = torch.full_like(least, torch.iinfo(least.dtype).max)[:, None].repeat(1, scores.values.shape[1], 1)
        leads[torch.arange(len(leads), device=leads.device), rival] = least
        return leads
    if isinstance(rule, Unanimous):
        weakness = view_leads(rule, scores, predicted, regions)
        return rivals_only(weakness[:, None].repeat(1, scores.values.shape[1], 1), predicted)
    left = outside(scores.values, regions).long()
    if isinstance(rule, Masked):
        held = second_masks(own(scores.values, predicted), regions, masks)[0].long()
    else:
        low, high = scores.need_bounds(rule.name)
        held = own(left, predicted) - (high - low) * regions.sizes
    return rivals_only(held[:, None] - left, predicted)


def view_leads(rule: Unanimous, scores: IntegerScores, predicted: Tensor, regions: Regions) -> Tensor:
    """How well each placement is defended by the views that hide it, int64 [b n].

    By their witnesses first. Most placements of an image that is not certified have none; of these, those come first
    where the best view decides least for the predicted class.
    """
    _, most = scores.need_bounds(rule.name)
    hide = ~regions.masks().flatten(1)  # n views
    counts = own(scores.values, predicted).flatten(1)
    best = torch.stack([torch.where(hide, each, -1).amax(dim=1) for each in counts])
    return rule.witnesses(scores, predicted, regions) * (most + 2) + best


def second_masks(maps: Tensor, regions: Regions, masks: Regions) -> tuple[Tensor, Tensor]:
    """Of maps [b i j], what each region and the second mask that takes most leave, and that mask: two [b n]."""
    masks = masks.to(maps.device)
    count = len(maps) * len(regions)
    least = torch.empty(count, dtype=maps.dtype, device=maps.device)
    second = torch.empty(count, dtype=torch.int64, device=maps.device)
    for part in pieces(count, masks, maps.device):
        taken = regions.masks(part % len(regions))
        left = outside(maps[part // len(regions)].masked_fill(taken, 0), masks)
        least[part], second[part] = left.min(dim=1)
    return least.view(len(maps), -1), second.view(len(maps), -1)
