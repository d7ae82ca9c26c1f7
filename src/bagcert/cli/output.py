"""What several commands show: progress bars, tables of accuracies, how to continue after Ctrl-C."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows.attacked import AttackRows, unsound_paths
from bagcert.rows.certified import Rows, summary
from bagcert.rules import detects
from bagcert.threats import Threat, parse_threat


@contextmanager
def counted(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """A progress bar on stderr, if that is a terminal. Call the function it yields with the number of items done."""
    columns = (what, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True, quiet=quiet)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        yield lambda done: progress.advance(task, done)


@contextmanager
def continued(path: Path, quiet: bool = False) -> Iterator[None]:
    """On Ctrl-C, keep the rows so far and print how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        if not quiet:
            again = shlex.join(sys.argv[1:])
            typer.echo(f"stopped; the rows so far are in {path}; to continue: bagcert {again}", err=True)
        raise typer.Exit(130) from None


def rows_path(out: Path) -> Path:
    """The path that the caller chose for rows."""
    if out.suffix != ".jsonl":
        raise UsageError(f"The name of --out must end in .jsonl, but is {out}. For a page, use `bagcert report`.")
    return out


DETECTION = (
    "Under detect, an alert is an error, and certified means: whatever the patch, the right answer or an alert. "
    "An attacker can always provoke an alert."
)


def show_certified(rows: Rows, defense: Defense, seconds: float, masks: Mapping[str, Threat] | None = None) -> None:
    """Print a table in percent; `masks` are the threats that come from files, by their texts."""
    known = masks or {}
    alerts = any(rows.accuracies(entry).alerted is not None for entry in rows.results)
    table = Table("patch", "rule", "clean %", "certified %", "95 %", "answered %", *(["alerts %"] if alerts else []))
    for entry, result in zip(rows.results, summary(rows), strict=True):
        low, high = result["interval"]
        shares = [f"{100 * result[key]:.2f}" for key in ("clean_accuracy", "certified_accuracy")]
        threat = parse_threat(known.get(entry.patch, entry.patch), defense.threat.image_size)
        found = rows.accuracies(entry)
        alerted = [] if not alerts else ["–" if found.alerted is None else f"{100 * found.alerted:.2f}"]
        middle = (f"{100 * low:.1f}–{100 * high:.1f}", f"{100 * found.answered:.2f}")
        table.add_row(threat.describe(), entry.rule, *shares, *middle, *alerted)
    console = Console(soft_wrap=True, highlight=False, width=max(100, get_terminal_size().columns))
    console.print(table)
    if any(detects(entry.rule) for entry in rows.results):
        console.print(DETECTION)
    console.print(f"scores by {rows.header['arithmetic']}")
    console.print(f"{len(rows.labels)} images of {rows.header['data']['name']} in {seconds:.0f} s; rows: {rows.path}")


def show_card(name: str, card: dict[str, Any]) -> None:
    """Print how a model was trained, and its accuracies on the whole test set."""
    console = Console(soft_wrap=True)
    try:
        console.print(name, card.get("command", ""), style="bold", markup=False)
        if "recipe" in card:
            console.print(
                f"seed {card['seed']}, {card['seconds'] / 60:.1f} minutes on {card['device']}, {card['steps']} steps, "
                f"data {card['data']['name']} {card['data']['digest'][:12]}",
                markup=False,
            )
        # Shipped models have accuracies on the test set, runs of `bagcert train` on the validation split.
        table = Table("patch", "rule", "split", "clean %", "certified %", "answered %")
        own = {"patch": card["patch"], "rule": card["rule"]}
        validation = [{**own, **card["validation"]}] if "validation" in card else [own]
        for row in card.get("test", validation):
            split = "test" if "test" in card else "validation" if "validation" in card else ""
            shares = (f"{100 * row[key]:.2f}" if key in row else "" for key in ("clean", "certified", "answered"))
            table.add_row(row["patch"], row["rule"], split, *shares)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"The card of {name} is missing a value or has a wrong one ({error}). Copy the model again."
        ) from error
    console.print(table)


def report_unsound(rows: AttackRows, path: Path) -> None:
    """Print every certified image that changed its class, in red, and exit with 1 if there is one."""
    console = Console(stderr=True, soft_wrap=True, highlight=False)
    broken = rows.flips_of_certified.tolist()
    for image in broken:
        before, after = int(rows.predicted[image]), int(rows.attacked[image])
        picture = unsound_paths(path, image)[0]
        console.print(
            f"certified image {image} changed from class {before} to {after}: the proof is broken; see {picture}",
            style="bold red",
            markup=False,
        )
    if broken:
        raise typer.Exit(1)
