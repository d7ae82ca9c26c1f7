"""Patches by sign steps on any goal: what no proof may lose to."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from bagcert.attacks.attack import soft_scores
from bagcert.attacks.placements import Placements
from bagcert.attacks.windows import Windows
from bagcert.defense import Defense
from bagcert.tensors import Images, Scores

STEP_SIZE = 0.05


def descend(
    defense: Defense, images: Images, places: Tensor, goal: Callable[[Scores], Tensor], steps: int, seed: int
) -> Iterator[Images]:
    """Attacked images, now and then on the way down; patches at the regions `places` [b] start from noise."""
    scorer, placements = defense.scorer, Placements(defense.regions, None)
    windows = Windows.around(scorer, *placements.together(places[:, None], defense.threat.image_size))
    noise = torch.rand(images.shape, generator=torch.Generator().manual_seed(seed)).to(images.device)
    clean, soft = windows.cut(images), soft_scores(defense, images)
    pixels = torch.where(windows.painted, windows.cut(noise), clean)
    for step in range(1, steps + 1):
        pixels = pixels.detach().requires_grad_()
        scores = windows.splice(scorer.step.soft(windows.logits(scorer, pixels)), soft)
        (slope,) = torch.autograd.grad(goal(scores).sum(), pixels)
        pixels = torch.where(windows.painted, (pixels.detach() - STEP_SIZE * slope.sign()).clamp(0, 1), clean)
        if step in (steps // 4, steps // 2, steps):
            yield windows.paste(pixels.detach(), images)
