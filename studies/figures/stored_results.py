"""The stored rows, read once, and the command that makes those that are missing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from bagcert.report.drawing import Picture
from bagcert.rows.attacked import AttackRows, read_attack_rows
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.shipping import ROWS
from bagcert.stored_models import card, shipped_models
from studies.figures import plan
from studies.figures.plan import Curve, ScoreRun, SweepModel

Key = TypeVar("Key")
Kept = TypeVar("Kept")


@dataclass(frozen=True, eq=False)
class Shelf(Generic[Key, Kept]):
    """Rows of one kind; `missing` is one line that says what is not there and how to make it, or empty."""

    found: dict[Key, Kept]
    missing: str


@dataclass(frozen=True, eq=False)
class Drawn:
    """A figure, or None if there are no rows, and what it lacks."""

    picture: Picture | None
    missing: tuple[str, ...] = ()

    @property
    def notes(self) -> list[str]:
        return [line for line in self.missing if line]


def take(paths: Mapping[Key, Path], read: Callable[[Path], Kept | None], what: str, command: str) -> Shelf[Key, Kept]:
    """Read what is there; `read` returns None for rows that are out of date."""
    read_now = {key: read(path) for key, path in paths.items() if path.exists()}
    found = {key: rows for key, rows in read_now.items() if rows is not None}
    absent = len(paths) - len(found)
    return Shelf(found, f"without {absent} of {len(paths)} {what}; to make them: {command}" if absent else "")


@dataclass(frozen=True, eq=False)
class Stock:
    """Everything that figures are made of, each part read when a figure first asks for it."""

    results: Path
    data_dir: Path | None = None

    @cached_property
    def sweep(self) -> Shelf[SweepModel, Rows]:
        paths = {model: plan.sweep_rows(self.results, model) for model in plan.SWEEP}
        return take(paths, read_rows, "sweep models", "python -m studies sweep --runs 'rf*'")

    @cached_property
    def sweep_attacks(self) -> Shelf[SweepModel, AttackRows]:
        paths = {model: plan.sweep_attack(self.results, model) for model in plan.SWEEP}
        return take(paths, read_attack_rows, "attacked sweep models", "python -m studies sweep --runs 'rf*'")

    @cached_property
    def curves(self) -> Shelf[ScoreRun, Curve]:
        paths = {run: plan.score_curve(self.results, run) for run in plan.SCORE_RUNS}
        steps = dict.fromkeys(f"--runs '{run.step}-*'" for run in plan.SCORE_RUNS)
        command = f"python -m studies sweep {' '.join(steps)}"
        return take(paths, plan.read_curve, "runs of score functions", command)

    @cached_property
    def bounds(self) -> Shelf[tuple[str, str], AttackRows]:
        """Attacks on the shipped models, by model and patch."""
        keys = [(model, patch) for model in shipped_models() for patch in plan.BOUND_PATCHES]
        paths = {key: plan.bound_rows(self.results, *key) for key in keys}
        return take(paths, read_current_attack, "attacks on shipped models", "python -m studies shipped bounds")

    @cached_property
    def shipped(self) -> Shelf[str, Rows]:
        """Rows of the shipped models: against every patch if these have been made, else those of their cards."""
        paths = {model: plan.shape_rows(self.results, model) for model in shipped_models()}
        shelf = take(paths, read_current, "shipped models against all patches", "python -m studies shipped shapes")
        found = {
            model: shelf.found[model] if model in shelf.found else shipped_rows(model) for model in shipped_models()
        }
        return Shelf(found, shelf.missing)


@cache
def shipped_rows(model: str) -> Rows:
    """The rows that come with a model; nobody changes them while a study runs."""
    return read_rows(shipped_models()[model] / ROWS)


def read_current(path: Path) -> Rows | None:
    """Rows of a shipped model; None if they are of other weights."""
    rows = read_rows(path)
    return rows if is_shipped(rows.header) else None


def read_current_attack(path: Path) -> AttackRows | None:
    """An attack on a shipped model; None if it is of other weights."""
    rows = read_attack_rows(path)
    return rows if is_shipped(rows.header) else None


def is_shipped(header: dict[str, Any]) -> bool:
    return bool(header["weights_sha256"] == card(header["model"])["weights_sha256"])
