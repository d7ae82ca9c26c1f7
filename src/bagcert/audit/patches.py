"""Patches that try to reach beyond R(l): random, extreme and adversarial pixels at a few placements."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.attacks import AttackSettings, attack
from bagcert.attacks.attack import lead_slopes
from bagcert.attacks.placements import Placements
from bagcert.defense import Defense
from bagcert.tensors import Images

QUICK = AttackSettings(steps=20, step_size=0.1)  # few, long steps: only the final pixels matter


@dataclass(frozen=True, eq=False)
class Painted:
    """Images with patches, and the outputs [b 1 i j] that no patch reaches."""

    images: Images
    untouched: Tensor


def painted(defense: Defense, images: Images) -> Iterator[Painted]:
    """Random, black and white patches at a small set of placements."""
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(0))
    yield from filled(defense, images, [noise, torch.zeros_like(images), torch.ones_like(images)])


def adversarial(defense: Defense, images: Images) -> Iterator[Painted]:
    """At the same placements, pixels that lower the lead most by its slope; and attacks that changed a class."""
    found = attack(defense, images, None, QUICK)
    predicted = found.certificate.predicted
    slopes = lead_slopes(defense, images.to(predicted.device), predicted)
    harmful = (slopes <= 0).to(images)  # black where brightness helps the class, otherwise white
    yield from filled(defense, images, [harmful])
    painted_at, changed = (
        torch.cat([found.placement[:, None], found.others], dim=1).cpu(),
        found.placement[:, 0].cpu() >= 0,
    )
    regions = Placements.of(defense.threat, defense.scorer.footprint, every=True).regions.to(images.device)
    reached = torch.zeros(len(images), *regions.grid, dtype=torch.bool)
    for image in changed.nonzero().flatten():
        same = (regions.placements.cpu() == painted_at[image][:, None]).all(dim=2)  # m n
        assert bool(same.any(dim=1).all()), "an attack paints only at placements of the threat"
        indices = same.any(dim=0).nonzero().flatten()
        reached[image] = regions.masks(indices).cpu().any(dim=0)  # several if regions differ inside one rectangle
    yield Painted(found.images.cpu(), ~reached[:, None])


def filled(defense: Defense, images: Images, fills: list[Images]) -> Iterator[Painted]:
    """The images with the pixels of each fill, at each of a small set of placements."""
    placements = Placements.of(defense.threat, defense.scorer.footprint, every=True).to(images.device)
    chosen = spread(placements.regions.placements)
    pixels = placements.pixels(chosen, defense.threat.image_size)
    for paint, reached in zip(pixels, placements.regions.masks(chosen), strict=True):
        for fill in fills:
            yield Painted(torch.where(paint, fill, images), ~reached[None, None])


def spread(placements: Tensor) -> Tensor:
    """The four corners and some placements in between, as indices."""
    row, column = placements[:, 0], placements[:, 1]
    corners = torch.stack(
        [(row + column).argmin(), (row + column).argmax(), (row - column).argmin(), (row - column).argmax()]
    )
    between = torch.linspace(0, len(placements) - 1, 5).long()
    return torch.tensor(sorted({*corners.tolist(), *between.tolist()}))
