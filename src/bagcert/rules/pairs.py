"""The weakest of all pairs of masks: no more than a few masked copies of a map are held at a time."""

from typing import NamedTuple

import torch
from torch import Tensor

from bagcert.rules.certificate import own
from bagcert.rules.masking_rule import least_pairs, outside_pairs, pieces, second_masks
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import IntegerScores, outside
from bagcert.threats import Regions


class Weakest(NamedTuple):
    """Of each image, the least sum outside two masks over all rivals; both masks and the rival: each [b]."""

    left: Tensor
    first: Tensor
    second: Tensor
    rival: Tensor


def floors(maps: Tensor, left: Tensor, masks: Regions) -> Tensor:
    """A lower bound on what each first mask and a second one leave: that takes at most the heaviest mask of maps⁺."""
    return left - masks.sums(maps.clamp(min=0)).amax(dim=-1, keepdim=True)


def weakest_pair(maps: Tensor, classes: Tensor, masks: Regions, left: Tensor | None = None) -> Weakest:
    """Of maps [b k i j], the least sum outside two masks over all rivals of each image's class.

    One greedy pair per image bounds the answer, so most first masks need no search. Whoever knows the sums outside each
    mask, of rivals only, gives them as `left` [b k n].
    """
    everyone, count = torch.arange(len(maps), device=maps.device), maps.shape[1]
    left = rivals_only(outside(maps, masks), classes) if left is None else left
    under = left.amin(dim=1)  # b n: what each first mask leaves, so far with the second equal to the first
    below = rivals_only(floors(maps, left, masks), classes)
    rival = left.amin(dim=2).argmin(dim=1)
    greedy = least_pairs(maps.flatten(0, 1), everyone * count + rival, under.argmin(dim=1), masks)
    limit = torch.minimum(under, greedy[:, None] + 1)
    image, rival, first = (below < limit[:, None]).nonzero(as_tuple=True)
    least = least_pairs(maps.flatten(0, 1), image * count + rival, first, masks)
    under = under.flatten().scatter_reduce(0, image * len(masks) + first, least, "amin").view_as(under)
    first = under.argmin(dim=1)
    least, second, rival = weakest_second(maps, classes, first, masks)
    return Weakest(least, first, second, rival)


def weakest_second(maps: Tensor, classes: Tensor, first: Tensor, masks: Regions) -> tuple[Tensor, Tensor, Tensor]:
    """For each image's first mask [b], the least that a second one leaves over all rivals, that mask and the rival."""
    left = torch.empty(*maps.shape[:2], len(masks), dtype=maps.dtype, device=maps.device)
    for part in pieces(len(first), masks, first.device, width=maps.shape[1]):
        left[part] = outside_pairs(maps[part], first[part], masks)
    least, pair = rivals_only(left, classes).flatten(1).min(dim=1)
    return least, pair % len(masks), pair // len(masks)


def pair_leads(
    scores: IntegerScores, classes: Tensor, regions: Regions, masks: Regions, rival: Tensor | None, above: int = 0
) -> Tensor:
    """The least Σ Δ outside each region and any second mask, less `above`, int64 [b k n].

    The class's own entries are out of the way; if one `rival` of each image is given, those of the others are too, and
    it takes a k-th of the time.
    """
    if rival is None:
        delta = own(scores.low, classes)[:, None] - scores.high
        least = second_masks(delta.flatten(0, 1), regions, masks)[0].long() - above
        return rivals_only(least.view(*delta.shape[:2], -1), classes)
    least = second_masks(own(scores.low, classes) - own(scores.high, rival), regions, masks)[0].long() - above
    leads = torch.full_like(least, torch.iinfo(least.dtype).max)[:, None].repeat(1, scores.values.shape[1], 1)
    leads[torch.arange(len(leads), device=leads.device), rival] = least
    return leads
