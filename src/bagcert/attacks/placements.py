"""Where to attack: the placements that a certificate finds weakest, and the rival that gains there."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.rules import IntegerScores
from bagcert.rules.certificate import own
from bagcert.rules.rule import rivals_only
from bagcert.rules.scores import outside
from bagcert.threats import Footprint, Regions, Threat
from bagcert.threats.regions import MaskRegions, maximal_sets


@dataclass(frozen=True, eq=False)
class Placements:
    """The placements to choose from: what each reaches, and which pixels it may paint."""

    regions: Regions
    painted: Tensor | None  # bool [n h w] for pixel sets of any shape; None: the rectangles of `regions.placements`

    @staticmethod
    def of(threat: Threat, footprint: Footprint, every: bool) -> "Placements":
        """Every placement, or those with a maximal region: the proof is nowhere weaker than at one of them.

        A patch at the border paints other pixels than the maximal one that reaches its outputs, so a full search has to
        try both.
        """
        regions = footprint.regions(threat)
        if every or threat.masks is None:
            return Placements(regions if every else regions.maximal(), threat.masks)
        kept = maximal_sets(regions.masks().flatten(1))
        return Placements(regions.maximal(), threat.masks[kept])

    def thinned(self, most: int) -> "Placements":
        """About `most` of them, spread over the image, and one for each maximal region."""
        count = len(self.regions)
        if count <= most or self.painted is not None:
            return self
        largest = (self.regions.placements[:, None] == self.regions.maximal().placements).all(dim=2).any(dim=1)
        kept = largest | (torch.arange(count, device=largest.device) % -(-count // most) == 0)
        index = kept.nonzero().flatten()
        chosen = MaskRegions(self.regions.masks(index), self.regions.placements[index], self.regions.count)
        return Placements(chosen, None)

    def to(self, device: torch.device) -> "Placements":
        return Placements(self.regions.to(device), None if self.painted is None else self.painted.to(device))

    def together(self, places: Tensor, image_size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        """Of placements [n m], m at once: what they may paint [n h w], what they reach [n i j], and a box [n 4] around.

        The box has the size that `sizes` says.
        """
        painted = torch.stack([self.pixels(each, image_size) for each in places.unbind(dim=1)]).any(dim=0)
        reached = torch.stack([self.regions.masks(each) for each in places.unbind(dim=1)]).any(dim=0)
        corner = self.regions.placements[places[:, 0], :2] if places.shape[1] == 1 else torch.zeros_like(places[:, :2])
        return painted, reached, torch.cat([corner, self.sizes(places, image_size)], dim=1)

    def sizes(self, places: Tensor, image_size: tuple[int, int]) -> Tensor:
        """Height and width [n 2] of the pixels around placements [n m]; the whole image if they may be far apart."""
        if places.shape[1] == 1:
            return self.regions.placements[places[:, 0], 2:]
        return torch.tensor(image_size, device=places.device).repeat(len(places), 1)

    def sums(self, maps: Tensor) -> Tensor:
        """Sums of maps [b h w] over what each placement may paint, [b n]."""
        if self.painted is not None:
            return maps.flatten(1) @ self.painted.flatten(1).T.to(maps.dtype)
        table = torch.nn.functional.pad(maps.double().cumsum(dim=1).cumsum(dim=2), (1, 0, 1, 0))
        top, left, height, width = self.regions.placements.unbind(dim=1)
        bottom, right = top + height, left + width
        return table[:, bottom, right] - table[:, top, right] - table[:, bottom, left] + table[:, top, left]

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


def weakest_placements(leads: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """From leads [b k n] over rivals, the `count` weakest placements of each image and their rivals: two [b count]."""
    lead, rival = leads.min(dim=1)
    place = lead.sort(dim=1, stable=True).indices[:, :count]
    return place, rival.gather(1, place)


def companions(scores: IntegerScores, predicted: Tensor, rival: Tensor, place: Tensor, regions: Regions) -> Tensor:
    """To each image's placements [b m], the others that are attacked with it: [b m count], itself first.

    Each is the region that holds most of the lead over the rival [b m] outside those before.
    """
    images, ranks = place.shape
    image = torch.arange(images, device=place.device).repeat_interleave(ranks)
    delta = scores.values[image, predicted[image]] - scores.values[image, rival.flatten()]
    together = [place.flatten()]
    while len(together) < regions.count:
        delta = delta.masked_fill(regions.masks(together[-1]), 0)
        together.append(regions.sums(delta).argmax(dim=1))
    return torch.stack(together, dim=1).view(images, ranks, -1)


def first_where_steep(leads: Tensor, gains: Tensor) -> Tensor:
    """Leads [b k n] in their order; among equal leads, placements with a larger gain [b n] come first; int64."""
    rank = gains.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    away = leads == torch.iinfo(leads.dtype).max  # what is no rival stays out of the way
    return torch.where(away, torch.iinfo(torch.int64).max, leads.long() * gains.shape[1] + rank[:, None])


def paper_leads(scores: IntegerScores, predicted: Tensor, regions: Regions) -> Tensor:
    """Σ_{(i,j) ∉ R(l)} Δ_c, [b k n]: App. A.2 starts where this is least.

    It argues with Δ = -1 in all of R(l), yet does not subtract the size of R(l): if footprints differ in size, this
    is not the weakest placement of Condition 3.2.
    """
    left = outside(scores.values, regions)
    return rivals_only(own(left, predicted)[:, None] - left, predicted)
