"""Rules whose inference takes masks away: the masks themselves, and what is left outside two of them."""

from dataclasses import replace
from typing import Self

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.program import at_once
from bagcert.rules.certificate import own
from bagcert.rules.rule import Rule
from bagcert.rules.scores import IntegerScores, outside
from bagcert.threats import Regions

# Map cells (or masks) of the rows held at a time; see CHUNK_CELLS.
ROW_CELLS = {"cpu": 2**18, "cuda": 2**25}


class MaskingRule(Rule):
    """A rule with masks: the maximal regions of the one threat that it is built for.

    Until it is built, the regions at hand are its masks. A threat is covered if each of its regions lies inside a mask.
    """

    masks: Regions | None

    @property
    def built(self) -> bool:  # type: ignore[override]
        return self.masks is not None

    def built_for(self, regions: Regions) -> Self:
        return self if self.masks is not None else replace(self, masks=regions)  # type: ignore[type-var]

    def unbuilt(self) -> Self:
        return replace(self, masks=None)  # type: ignore[type-var]

    def masks_for(self, regions: Regions) -> Regions:
        return regions if self.masks is None else self.masks.to(regions.sizes.device)

    def covers(self, regions: Regions) -> bool:
        return covered(regions, self.masks_for(regions))

    def need_cover(self, regions: Regions) -> None:
        needed_cover(regions, self.masks_for(regions))


def heaviest_mask(scores: IntegerScores, classes: Tensor, masks: Regions) -> Tensor:
    """The most that one mask takes away from each image's class, counted from the image's least score: int64 [b].

    Counted like that no score is negative, so outside a mask no class has more than its sum.
    """
    least = scores.low.flatten(1).amin(dim=1)
    return masks.sums(own(scores.low, classes) - least[:, None, None]).amax(dim=1).long()


def outside_pairs(maps: Tensor, first: Tensor, masks: Regions) -> Tensor:
    """For maps [r ... i j], each row with its first mask: sums outside that and every second mask, [r ... n].

    Each row needs one masked copy of the map and one summed-area table, whatever the shape of the masks. So no pair of
    masks has to be intersected, and memory never holds anything of the size of all pairs.
    """
    taken = masks.masks(first)
    rest = maps.masked_fill(taken.view(len(first), *[1] * (maps.dim() - 3), *taken.shape[1:]), 0)
    return outside(rest, masks)


def least_pairs(maps: Tensor, rows: Tensor, first: Tensor, masks: Regions) -> Tensor:
    """For each row r, the least sum of `maps[rows[r]]` outside mask `first[r]` and any second mask."""
    least = torch.empty(len(rows), dtype=maps.dtype, device=maps.device)
    for part in pieces(len(rows), masks, maps.device):
        least[part] = outside_pairs(maps[rows[part]], first[part], masks).amin(dim=1)
    return least


def second_masks(maps: Tensor, regions: Regions, masks: Regions) -> tuple[Tensor, Tensor]:
    """Of maps [b i j], what each region and the second mask that takes most leave, and that mask: two [b n]."""
    count = len(maps) * len(regions)
    least = torch.empty(count, dtype=maps.dtype, device=maps.device)
    second = torch.empty(count, dtype=torch.int64, device=maps.device)
    for part in pieces(count, masks, maps.device):
        taken = regions.masks(part % len(regions))
        left = outside(maps[part // len(regions)].masked_fill(taken, 0), masks)
        least[part], second[part] = left.min(dim=1)
    return least.view(len(maps), -1), second.view(len(maps), -1)


def pieces(rows: int, masks: Regions, device: torch.device, width: int = 1) -> list[Tensor]:
    """Row numbers in pieces that fit into memory, each row holding `width` maps."""
    cells = at_once(ROW_CELLS, device)
    size = max(1, cells // (width * max(masks.grid[0] * masks.grid[1], len(masks))))
    return [torch.arange(start, min(start + size, rows), device=device) for start in range(0, rows, size)]


def covering(regions: Regions, masks: Regions) -> Tensor:
    """Bool [regions, masks]: does the mask hold the whole region?"""
    return masks.sums(regions.masks().to(torch.int64)) == regions.sizes[:, None]


def covered(regions: Regions, masks: Regions) -> bool:
    """Does every region lie inside a mask, and are no more taken at once than the masks are for?"""
    return regions is masks or (regions.count <= masks.count and bool(covering(regions, masks).any(dim=1).all()))


def needed_cover(regions: Regions, masks: Regions) -> Tensor | None:
    """The covering masks of each region; None if each region is its own mask. Refuses a threat beyond the masks."""
    if regions is masks:
        return None
    covers = covering(regions, masks)
    if regions.count > masks.count or not bool(covers.any(dim=1).all()):
        raise UsageError(
            "The threat is larger than the rule's masks: one of its regions lies inside no mask. "
            "Build the rule for this threat, as defense.against(patch) does."
        )
    return covers
