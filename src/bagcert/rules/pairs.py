"""The weakest of all pairs of masks: no more than a few masked copies of a map are held at a time."""

import torch
from torch import Tensor

from bagcert.rules.masking_rule import least_pairs, outside_pairs, pieces
from bagcert.rules.rule import rivals_only
from bagcert.rules.totals import outside
from bagcert.threats import Regions


def floors(maps: Tensor, left: Tensor, masks: Regions) -> Tensor:
    """A lower bound on what each first mask and a second one leave: that takes at most the heaviest mask of maps⁺."""
    return left - masks.sums(maps.clamp(min=0)).amax(dim=-1, keepdim=True)


def weakest_pair(maps: Tensor, classes: Tensor, masks: Regions) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of maps [b k i j], the least sum outside two masks over all rivals of each image's class.

    Returns that sum, both masks and the rival, each [b]. One greedy pair per image bounds the answer, so most first
    masks need no search.
    """
    everyone, count = torch.arange(len(maps), device=maps.device), maps.shape[1]
    left = rivals_only(outside(maps, masks), classes)
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
    return least, first, second, rival


def weakest_second(maps: Tensor, classes: Tensor, first: Tensor, masks: Regions) -> tuple[Tensor, Tensor, Tensor]:
    """For each image's first mask [b], the least that a second one leaves over all rivals, that mask and the rival."""
    left = torch.empty(*maps.shape[:2], len(masks), dtype=maps.dtype, device=maps.device)
    for part in pieces(len(first), masks, first.device, width=maps.shape[1]):
        left[part] = outside_pairs(maps[part], first[part], masks)
    least, pair = rivals_only(left, classes).flatten(1).min(dim=1)
    return least, pair % len(masks), pair // len(masks)
