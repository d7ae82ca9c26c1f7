"""How long a GPU waits for pictures that are read and decoded while it trains, into benchmarks/results/.

    python -m benchmarks.feeding PHOTOGRAPHS                       (a minute of training, on a GPU)
    python -m benchmarks.feeding PHOTOGRAPHS --tiny --out /tmp/x   (a rehearsal on a CPU)

Trains `paper-imagenet-rf17` on a folder of 1,000 classes that is read as ImageNet would be. Its pictures are those of
PHOTOGRAPHS (train/CLASS/*), enlarged to 500x375, ImageNet's most frequent size, and dealt out to the classes: the time
to read them is right, the labels are not.
"""

import json
import shlex
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from PIL import Image

from bagcert.data.stream import default_workers
from bagcert.files import write_atomically
from bagcert.training.folder import device_name
from bagcert.training.loop import Order, train
from bagcert.training.recipe import load_recipe
from benchmarks.calling import call

RESULTS = Path(__file__).parent / "results" / "feeding.json"
RECIPE, SIZE, CLASSES = "paper-imagenet-rf17", (500, 375), 1000
SHORT = ("evaluation.times=1", "evaluation.images=64")
TINY = ("network.width=16", "training.batch_size=8", "schedule.epochs=0.01", "schedule.warmup_epochs=0")


def enlarged(photographs: Path, folder: Path, each: int) -> None:
    """A folder with so many pictures of each class to train on and one to test."""
    sources = sorted((photographs / "train").glob("*/*"))
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
    enlarged(photographs, work / "pictures", each)
    place = f"data.name={json.dumps(str((work / 'pictures').resolve()))}"
    recipe = load_recipe(RECIPE, [place, *SHORT, *(TINY if tiny else ())])
    train(recipe, Order(work / "run", minutes=None if tiny else minutes))
    log = [json.loads(line) for line in (work / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    steady = [line for line in log if "loss" in line][1:]  # the first line holds the compilation

    def mean(key: str) -> float:
        return float(sum(line[key] for line in steady)) / max(1, len(steady))

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    command = shlex.join(["python", "-m", "benchmarks.feeding", "PHOTOGRAPHS", "--minutes", str(minutes)])
    found: dict[str, Any] = {"command": command, "device": device_name(device), "workers": default_workers()}
    found |= {"recipe": RECIPE, "pictures": SIZE, "batch_size": recipe.training.batch_size, "lines": len(steady)}
    found |= {"images_per_second": round(mean("images_per_second")), "waited": round(mean("waited_for_images"), 4)}
    write_atomically(out, (json.dumps(found, indent=2) + "\n").encode())
    print(json.dumps(found))


if __name__ == "__main__":
    call(main)
