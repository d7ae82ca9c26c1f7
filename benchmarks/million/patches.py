"""What is painted, and where. A search may compute as it likes: only the certified program's answer counts."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.attacks.attack import PIXELS_AT_ONCE, soft_scores
from bagcert.attacks.goals import Aim, goal_for
from bagcert.attacks.windows import Windows, window_size
from bagcert.program import at_once
from bagcert.tensors import Images
from bagcert.threats.threat import Size
from benchmarks.million.world import World

CONTENTS = ("random", "black", "white", "extreme", "pasted", "won")
STEP_SIZE, TEST_EVERY = 0.05, 10


@dataclass(frozen=True, eq=False)
class Painted:
    """n attacked images."""

    image: Tensor  # int64 [n], in the slice
    corner: Tensor  # int64 [n 2]: row and column of the patch
    patch: Images  # [n c h w]
    content: list[str]  # what each patch is
    whole: Images


def pixels_at(corner: Tensor, size: Size) -> tuple[Tensor, Tensor]:
    """Rows and columns of patches, to index images [n c h w] by [n 1 h w]."""
    rows = corner[:, 0, None] + torch.arange(size[0], device=corner.device)
    columns = corner[:, 1, None] + torch.arange(size[1], device=corner.device)
    return rows[:, None, :, None], columns[:, None, None, :]


def cut(images: Images, corner: Tensor, size: Size) -> Images:
    """The pixels of each image at its corner, [n c h w]."""
    every = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    return images[every, channel, *pixels_at(corner, size)]


def paint(images: Images, corner: Tensor, patch: Images) -> Images:
    """Each image with its patch at its corner; the images themselves stay as they are."""
    every = torch.arange(len(images), device=images.device)[:, None, None, None]
    channel = torch.arange(images.shape[1], device=images.device)[None, :, None, None]
    whole = images.clone()
    whole[every, channel, *pixels_at(corner, (patch.shape[2], patch.shape[3]))] = patch
    return whole


def choose(world: World, among: Tensor, count: int, weak: float, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images, and a placement of each: `weak` of them at one of the weakest, the rest anywhere, some in a corner."""
    candidates = among.nonzero().flatten().cpu()
    image = candidates[torch.randint(len(candidates), (count,), generator=draw)]
    placements = world.placements.regions.placements.cpu()
    place = torch.randint(len(placements), (count,), generator=draw)
    ends = ((placements[:, :2] == 0) | (placements[:, :2] == placements[:, :2].amax(dim=0))).all(dim=1)
    corners = ends.nonzero().flatten()
    corner = corners[torch.randint(len(corners), (count,), generator=draw)]
    place = torch.where(torch.rand(count, generator=draw) < 0.25, corner, place)
    ranked = world.weakest(image).cpu()
    rank = torch.randint(ranked.shape[1], (count,), generator=draw)
    weakest = ranked[torch.arange(count), rank]
    place = torch.where(torch.rand(count, generator=draw) < weak, weakest, place)
    return image.to(world.defense.device), place.to(world.defense.device)


def cheap(world: World, among: Tensor, count: int, won: Images, draw: torch.Generator) -> Painted:
    """Patches that cost nothing; `won` are those that changed the class of other images."""
    image, place = choose(world, among, count, 0.5, draw)
    placements = world.placements.regions.placements[place]
    corner, size = placements[:, :2], (int(placements[0, 2]), int(placements[0, 3]))
    images, device = world.seen.images, world.defense.device
    kinds = CONTENTS if len(won) else CONTENTS[:-1]
    kind = torch.randint(len(kinds), (count,), generator=draw)
    random = torch.rand(count, images.shape[1], *size, generator=draw)
    other = torch.randint(len(images), (count,), generator=draw).to(device)
    there = world.placements.regions.placements[torch.randint(len(world.placements.regions), (count,), generator=draw)]
    made = {
        "random": random.to(device),
        "black": torch.zeros_like(random, device=device),
        "white": torch.ones_like(random, device=device),
        "extreme": (random < 0.5).float().to(device),
        "pasted": cut(images[other], there[:, :2].to(device), size),
    }
    if len(won):
        made["won"] = won[torch.randint(len(won), (count,), generator=draw)].to(device)
    patch = torch.stack([made[name] for name in kinds])[kind.to(device), torch.arange(count, device=device)]
    return Painted(image, corner, patch, [kinds[each] for each in kind], paint(images[image], corner, patch))


def descents(world: World, among: Tensor, count: int, steps: int, draw: torch.Generator) -> Painted:
    """Descents from the image's own pixels or random ones, run on the pixels whose scores the patch can change.

    On a GPU the search runs in bfloat16.
    """
    image, place = choose(world, among, count, 0.75, draw)
    placements = world.placements.regions.placements[place]
    corner, size = placements[:, :2], (int(placements[0, 2]), int(placements[0, 3]))
    images = world.seen.images[image]
    noise = torch.rand(count, images.shape[1], *size, generator=draw).to(images.device)
    fresh = (torch.rand(count, generator=draw) < 0.5).to(images.device)
    start = paint(images, corner, torch.where(fresh[:, None, None, None], noise, cut(images, corner, size)))
    height, width = window_size(world.defense.scorer, size)
    pieces = torch.arange(count, device=images.device).split(  # type: ignore[no-untyped-call]
        max(1, at_once(PIXELS_AT_ONCE, images.device) // (height * width))
    )
    whole = torch.cat([descend(world, image[part], place[part], images[part], start[part], steps) for part in pieces])
    return Painted(image, corner, cut(whole, corner, size), ["descent"] * count, whole)


def descend(world: World, image: Tensor, place: Tensor, images: Images, start: Images, steps: int) -> Images:
    """Sign steps on the loss of the rule's goal: the whole images after the last one."""
    defense, everyone = world.defense, torch.arange(len(images), device=images.device)
    scorer, on_gpu = defense.scorer, images.device.type == "cuda"
    windows = Windows.around(scorer, *world.placements.together(place[:, None], scorer.footprint.image_size))
    goal = goal_for(defense.rule, Aim(world.predicted[image], None, scorer.step.unit), defense.regions)
    once, where = image.unique(return_inverse=True)  # type: ignore[no-untyped-call]
    soft = soft_scores(defense, world.seen.images[once])[where]
    pixels = windows.cut(start)
    for number in range(steps):
        pixels = pixels.detach().requires_grad_()
        with torch.autocast(images.device.type, torch.bfloat16, enabled=on_gpu):
            logits = windows.logits(scorer, pixels)
        scores = windows.splice(scorer.step.soft(logits.float()), soft)
        if number % TEST_EVERY == 0:
            goal = goal.refreshed(scores.detach(), everyone)
        (slope,) = torch.autograd.grad(goal.losses(scores).sum(), pixels)
        moved = (pixels.detach() - STEP_SIZE * slope.sign()).clamp(0, 1)
        pixels = torch.where(windows.painted, moved, pixels.detach())
    return windows.paste(pixels.detach(), images)
