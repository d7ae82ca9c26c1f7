"""`bagcert demo`: from nothing to a report in minutes, on two CPU cores."""

import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from bagcert.attacks import AttackSettings
from bagcert.cli.output import continued, counted, report_unsound, show_certified
from bagcert.data.cifar10_sources import fetch_cifar10
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.program import usual_device
from bagcert.report.page import make_report
from bagcert.rows.attacked import read_attack_rows, write_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe, fitting_dataset
from bagcert.rows.prover import one_thread
from bagcert.rows.write import Plan, write_rows
from bagcert.training.loop import RunOptions
from bagcert.training.loop import train as train_recipe
from bagcert.training.recipe import load_recipe
from bagcert.training.run import RunFolder
from bagcert.training.sync import Stopped


class Scene(NamedTuple):
    """What the demo shows: a model, and patches in addition to the one on its card."""

    model: str
    patches: tuple[str, ...]


CERTIFIED, ATTACKED = 1000, 40  # images
SHIPPED = Scene("cifar10-small", ("2x2", "8x8", "1x24", "24x1"))
DIGIT_PATCHES = ("1x2", "2x1", "2x2")


def demo(
    out: Annotated[Path, typer.Option(help="folder for rows and report; a stopped demo continues there")] = Path(
        "demo"
    ),
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
) -> None:
    begun = time.monotonic()
    console = Console(highlight=False, soft_wrap=True)
    scene = find_scene(console, out, data_dir)
    defense = load(scene.model, usual_device())
    patch, rule = str(defense.card["patch"]), str(defense.card["rule"])
    dataset = fitting_dataset(None, defense, data_dir)
    source = dataset.split("test")
    header = describe(scene.model, defense, dataset, "test")

    images = min(CERTIFIED, len(source))
    console.print(f"2/4 certify {images:,} images: can any patch change the class?")
    evaluations = [Evaluation(each, rule) for each in (patch, *scene.patches)]
    rows, attacked = out / "rows.jsonl", out / "attack.jsonl"
    with continued(rows), counted("certifying", images) as after_batch:
        write_rows(rows, defense, Plan(evaluations, images, scores=True), source, header, after_batch)
    show_certified(read_rows(rows), defense, time.monotonic() - begun)

    console.print(f"3/4 attack {ATTACKED} images with {patch} patches where their proof is weakest")
    attacks = min(ATTACKED, len(source))
    # One thread: 2.4 s per image; two threads on two busy cores took 40 s.
    with one_thread(), continued(attacked), counted("attacking", attacks) as after_batch:
        write_attack_rows(attacked, defense, source, {**header, "images": attacks}, AttackSettings(), after_batch)
    found = read_attack_rows(attacked)
    console.print(f"    certified {found.certified_accuracy:.0%} ≤ attacked {found.attacked_accuracy:.0%}")
    report_unsound(found, attacked)

    console.print("4/4 report")
    page = make_report([rows, attacked], data_dir, out / "report")
    console.print(f"done in {time.monotonic() - begun:.0f} s; open {page.resolve()}")
    console.print(f"to check every certificate with separate code: bagcert verify {rows}")


def find_scene(console: Console, out: Path, data_dir: Path | None) -> Scene:
    """The shipped model if its data can be fetched, else a network for digits, trained on the spot."""
    console.print("1/4 data: CIFAR-10")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            fetch_cifar10(data_dir, progress)
        return SHIPPED
    except UsageError as error:
        console.print(
            f"    no CIFAR-10 ({error}); using 8x8 digits instead, with a network trained on the spot", markup=False
        )
    run = out / "digits"
    if not RunFolder(run).config.exists():
        try:
            train_recipe(load_recipe("digits", ()), RunOptions(out=run, resume=RunFolder(run).checkpoint.exists()))
        except Stopped:
            console.print(f"stopped; to continue: bagcert {shlex.join(sys.argv[1:])}")
            raise typer.Exit(130) from None
    return Scene(str(run), DIGIT_PATCHES)
