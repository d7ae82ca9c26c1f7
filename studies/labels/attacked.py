"""Patches by sign steps on any goal: what no proof may lose to."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.tensors import Images, Scores
from bagcert.threats import Regions

STEP_SIZE = 0.05


def painted(placements: Tensor, size: tuple[int, int]) -> Tensor:
    """What patches at placements [b 4] may paint, bool [b 1 h w]."""
    inside = []
    for start, length, side in ((0, 2, size[0]), (1, 3, size[1])):
        pixel = torch.arange(side, device=placements.device)
        first = placements[:, start, None]
        inside.append((pixel >= first) & (pixel < first + placements[:, length, None]))
    return (inside[0][:, :, None] & inside[1][:, None, :])[:, None]


def descend(
    defense: Defense, images: Images, places: Tensor, goal: Callable[[Scores], Tensor], steps: int, seed: int
) -> Iterator[Images]:
    """Attacked images, now and then on the way down; patches at the regions `places` [b] start from noise."""
    regions: Regions = defense.regions
    paint = painted(regions.placements[places], defense.threat.image_size)
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(seed)).to(images.device)
    pixels = torch.where(paint, noise, images)
    for step in range(1, steps + 1):
        pixels = pixels.detach().requires_grad_()
        (slope,) = torch.autograd.grad(goal(defense.scorer(pixels)).sum(), pixels)
        pixels = torch.where(paint, (pixels.detach() - STEP_SIZE * slope.sign()).clamp(0, 1), images)
        if step in (steps // 4, steps // 2, steps):
            yield pixels.detach()
