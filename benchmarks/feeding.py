"""Measure how long a GPU waits for pictures that are read and decoded while it trains.

    python -m benchmarks.feeding PHOTOGRAPHS                       (a minute of training, on a GPU)
    python -m benchmarks.feeding PHOTOGRAPHS --tiny --out /tmp/x   (a rehearsal on a CPU)

Trains `paper-imagenet-rf17` on a folder of 1,000 classes that is read as ImageNet would be. Its pictures are those of
PHOTOGRAPHS (train/CLASS/*), enlarged to 500x375, ImageNet's most frequent size, and spread over the classes: the time
to read them is right, the labels are not.
"""

import json
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer
from PIL import Image

from bagcert.data.stream import default_workers
from bagcert.errors import UsageError
from bagcert.program import usual_device
from bagcert.training.loop import RunOptions, train
from bagcert.training.recipe import load_recipe
from studies.common.commands import call
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.sharing import check_rehearsal
from studies.common.training import read_log, steady_mean

RESULTS = BENCHMARKS / "feeding.json"
RECIPE, SIZE, CLASSES = "paper-imagenet-rf17", (500, 375), 1000
SHORT = ("evaluation.times=1", "evaluation.images=64")
TINY = ("network.width=16", "training.batch_size=8", "schedule.epochs=0.01", "schedule.warmup_epochs=0")


def enlarged(photographs: Path, folder: Path, each: int) -> None:
    """A folder with `each` training pictures per class and one test picture."""
    sources = sorted((photographs / "train").glob("*/*"))
    if not sources:
        raise UsageError(f"There are no pictures in {photographs}/train/CLASS. Give a folder that has some.")
    numbers = [(part, number) for part, count in (("train", each), ("val", 1)) for number in range(CLASSES * count)]
    paths = [folder / part / f"n{number % CLASSES:08}" / f"{number // CLASSES}.JPEG" for part, number in numbers]
    sources_for = [sources[place % len(sources)] for place in range(len(paths))]
    with ProcessPoolExecutor(default_workers()) as pool:
        list(pool.map(enlarge, sources_for, paths, chunksize=100))


def enlarge(source: Path, path: Path) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = Image.open(source).convert("RGB").resize(SIZE, Image.Resampling.BICUBIC)
        picture.save(path, quality=90)


def main(
    photographs: Annotated[Path, typer.Argument(help="a folder with train/CLASS/*")],
    minutes: Annotated[float, typer.Option(help="of training")] = 1.0,
    each: Annotated[int, typer.Option(help="training pictures of each class", min=2)] = 8,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the shares, as JSON")] = RESULTS,
    work: Annotated[Path, typer.Option(help="the pictures and the run")] = Path("runs/feeding"),
) -> None:
    """Train for a while and report what share of the time the steps waited."""
    check_rehearsal(tiny, out, RESULTS)
    enlarged(photographs, work / "pictures", each)
    place = f"data.name={json.dumps(str((work / 'pictures').resolve()))}"
    recipe = load_recipe(RECIPE, [place, *SHORT, *(TINY if tiny else ())])
    train(recipe, RunOptions(work / "run", minutes=None if tiny else minutes))
    log = read_log(work / "run")
    speed, waited = steady_mean(log, "images_per_second"), steady_mean(log, "waited_for_images")
    found: dict[str, Any] = {"workers": default_workers(), "recipe": RECIPE, "pictures": SIZE}
    found |= {"batch_size": recipe.training.batch_size, "images_per_second": round(speed), "waited": round(waited, 4)}
    print(json.dumps(found))
    options = ["PHOTOGRAPHS", "--minutes", minutes, "--each", each]
    write_results(out, provenance("benchmarks.feeding", options, usual_device()), found)


if __name__ == "__main__":
    call(main)
