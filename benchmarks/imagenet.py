"""Time 50,000 images of 224x224: the network with receptive field 17 and its proofs.

    python -m benchmarks.imagenet                              (50,000 images, for a GPU)
    python -m benchmarks.imagenet --images 8 --batch-size 4    (a rehearsal on a CPU)

The network is the paper's (1,000 classes, 56x56 outputs) with random weights, by torch.compile in bfloat16, on random
pixels that are already on the device: none of this changes its time. Rules look closer only at classes that may matter,
so they are timed on maps that look trained: in each image one class has votes on 5 to 60 % of the map, ten rivals have
up to 80 % of that, and the others few.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.defense import Defense
from bagcert.program import usual_device
from bagcert.rules import read_scores
from bagcert.training.recipe import load_recipe
from studies.common.commands import call
from studies.common.results import BENCHMARKS, provenance, write_results

RESULTS = BENCHMARKS / "imagenet.json"
RECIPE, PATCH, SIDE = "paper-imagenet-rf17", "32x32", 224


def trained_looking_votes(images: int, classes: int, grid: tuple[int, int], device: torch.device) -> Tensor:
    """0/1 votes [b k i j], int32: a winner of any strength, ten rivals weaker than it, and few votes for all others."""
    generator = torch.Generator(device).manual_seed(0)

    def uniform(count: int, low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(images, count, generator=generator, device=device)

    chances = uniform(classes, 0, 0.02)
    order = torch.rand(images, classes, generator=generator, device=device).argsort(dim=1)
    strength = uniform(1, 0.05, 0.6)
    chances.scatter_(1, order[:, :11], torch.cat([strength, strength * uniform(10, 0, 0.8)], dim=1))
    return (torch.rand(images, classes, *grid, generator=generator, device=device) < chances[..., None, None]).int()


@torch.no_grad()
def measured(images: int, batch_size: int, frozen: bool, device: torch.device) -> dict[str, Any]:
    """Seconds for all batches, each part timed over the whole run, after a warm-up batch."""
    recipe = load_recipe(RECIPE)
    scorer = recipe.network.build((SIDE, SIDE), (0.5,), (0.25,)).to(device).eval()
    classes = tuple(str(number) for number in range(recipe.network.classes))
    sums = Defense.build(scorer, "every-region", PATCH, classes, batch_size)
    masks = Defense.build(scorer, "two-mask", PATCH, classes, batch_size)
    # Frozen, the weights are constants: inductor folds each batch norm into its convolution.
    scorer.logits = torch.compile(scorer.logits, options={"freezing": frozen})  # type: ignore[method-assign]
    pixels = torch.rand(batch_size, 3, SIDE, SIDE, device=device)
    votes = read_scores(trained_looking_votes(batch_size, len(classes), scorer.footprint.grid, device), (0, 1))
    steps: dict[str, Callable[[], object]] = {
        "network": lambda: scorer.logits(pixels),
        "network_and_every_region": lambda: sums.certify(pixels, exact=False),
        "every_region": lambda: sums.certify_integers(votes, exact=False),
        "two_mask": lambda: masks.certify_integers(votes, exact=False),
    }
    found: dict[str, Any] = {}
    for name, step in steps.items():
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        step()
        found[f"{name}_seconds"] = round(timed(step, -(-images // batch_size), device), 3)
        if device.type == "cuda":
            found[f"{name}_peak_gib"] = round(torch.cuda.max_memory_allocated(device) / 2**30, 2)
    for name, defense in {"every_region": sums, "two_mask": masks}.items():
        found[f"certified_by_{name}"] = int(defense.certify_integers(votes, exact=False).certified.sum())
    return found


def timed(step: Callable[[], object], batches: int, device: torch.device) -> float:
    wait(device)
    begun = time.perf_counter()
    for _ in range(batches):
        step()
    wait(device)
    return time.perf_counter() - begun


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def main(
    images: Annotated[int, typer.Option(help="rounded up to whole batches", min=1)] = 50_000,
    batch_size: Annotated[int, typer.Option(min=1)] = 200,
    frozen: Annotated[bool, typer.Option(help="weights are constants of the compiled network")] = True,
    out: Annotated[Path, typer.Option(help="the times, as JSON")] = RESULTS,
) -> None:
    """Time network and certificates at ImageNet's size."""
    device = usual_device()
    with torch.autocast(device.type, dtype=torch.bfloat16, enabled=device.type == "cuda"):
        found = measured(images, batch_size, frozen, device)
    print(json.dumps(found))
    options = ["--images", images, "--batch-size", batch_size, *([] if frozen else ["--no-frozen"])]
    facts = {"precision": "bfloat16" if device.type == "cuda" else "float32", "patch": PATCH, "recipe": RECIPE}
    head = provenance("benchmarks.imagenet", options, device)
    write_results(out, head, {**facts, "images": images, **found})


if __name__ == "__main__":
    call(main)
