"""Check that NaN pixels reach exactly the footprint, for every placement of a 32x32 patch at 224x224.

    python -m benchmarks.footprints                (37,249 placements, three networks, about 15 minutes on two cores)
    python -m benchmarks.footprints --every 48     (some of them)

The paper's ImageNet networks with one channel throughout, which changes no footprint, in float64 on the CPU, where
convolutions are computed tap by tap. A NaN in a pixel reaches every output that sees the pixel, and no other.
"""

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track

from bagcert.scorers.base import Logits
from bagcert.scorers.residual import IMAGENET_KERNELS
from bagcert.threats import parse_threat
from bagcert.threats.probe import reached_outputs
from bagcert.training.recipe import load_recipe
from studies.common.commands import call
from studies.common.results import BENCHMARKS, provenance, write_results

RESULTS = BENCHMARKS / "footprints.json"
PATCH, SIZE = "32x32", (224, 224)
AT_ONCE = 193  # placements: one row of them


def compared(field: int, every: int) -> dict[str, Any]:
    """How many placements were tried, how many footprints were wrong, and the sizes of the regions."""
    recipe = load_recipe(f"paper-imagenet-rf{field}", ["network.classes=2", "network.channels=1", "network.width=1"])
    scorer = recipe.network.build(SIZE, (0.0,), (1.0,)).eval()
    regions = scorer.footprint.regions(parse_threat(PATCH, SIZE))
    chosen = torch.arange(0, len(regions), every)
    wrong = 0
    for index in track(chosen.split(AT_ONCE), description=f"receptive field {field}"):  # type: ignore[no-untyped-call]
        pixels = torch.zeros(len(index), *SIZE, dtype=torch.bool)
        for image, (row, column, height, width) in zip(pixels, regions.placements[index].tolist(), strict=True):
            image[row : row + height, column : column + width] = True
        wrong += int((reached_outputs(Logits(scorer), pixels, 1) != regions.masks(index)).flatten(1).any(dim=1).sum())
    sizes = regions.sizes[chosen]
    return {"placements": len(chosen), "wrong": wrong, "smallest": int(sizes.min()), "largest": int(sizes.max())}


def main(
    every: Annotated[int, typer.Option(help="try each so-manyth placement", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="the counts, as JSON")] = RESULTS,
) -> None:
    """Compare footprints with what NaN reaches; a difference is exit code 1."""
    fields = {str(field): compared(field, every) for field in IMAGENET_KERNELS}
    print(json.dumps(fields))
    head = provenance("benchmarks.footprints", ["--every", every], torch.device("cpu"))
    write_results(out, head, {"patch": PATCH, "image": "224x224", "receptive_fields": fields})
    if any(found["wrong"] for found in fields.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    call(main)
