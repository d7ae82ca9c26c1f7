"""What the figures need: which models and runs, against which patches, and where their rows lie.

studies/results/sweep/rf7-m0.50.jsonl.xz           a model of the sweep: certificates of all test images
studies/results/sweep/rf7-m0.50-attack.jsonl.gz    the same model: an attack on the first 1,000
studies/results/score-functions/sigmoid-3.jsonl    a run's accuracies over training, on the validation split
studies/results/shapes/cifar10-small.jsonl.xz      a shipped model: certificates against patches of every size and shape
studies/results/bounds/cifar10-small-5x5.jsonl.gz  a shipped model: an attack on its first test images
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.rows.format import Evaluation, read_texts
from bagcert.scorers.residual import CIFAR_KERNELS

SQUARES = tuple(f"{side}x{side}" for side in range(1, 11))
RECTANGLES = ("1x24", "2x12", "3x8", "4x6", "6x4", "8x3", "12x2", "24x1")  # of 24 pixels, height x width
BOUND_PATCHES = ("2x2", "5x5", "8x8")
MAIN_PATCH = "5x5"
CONDITIONS = {"largest-region": "Condition 3.3", "every-region": "Condition 3.2", "two-mask": "two-mask"}


@dataclass(frozen=True)
class SweepModel:
    """One network of the paper's sweep."""

    receptive_field: int
    margin: float

    @property
    def name(self) -> str:
        return f"rf{self.receptive_field}-m{self.margin:.2f}"


@dataclass(frozen=True)
class ScoreRun:
    """One run of App. A.3."""

    step: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.step}-{self.seed}"


MARGINS = (0.25, 0.5, 0.75, 1.0)
SWEEP = tuple(SweepModel(field, margin) for field in CIFAR_KERNELS for margin in MARGINS)
SCORE_RUNS = tuple(ScoreRun(step, seed) for step in ("heaviside", "sigmoid", "softmax") for seed in range(5))
# The paper certifies square and rectangular patches by Condition 3.2; we compare all rules at 5x5 only.
SWEEP_EVALUATIONS = (
    *(Evaluation(MAIN_PATCH, rule) for rule in CONDITIONS),
    *(Evaluation(patch, "every-region") for patch in (*SQUARES, *RECTANGLES) if patch != MAIN_PATCH),
)


def sweep_rows(results: Path, model: SweepModel) -> Path:
    return results / "sweep" / f"{model.name}.jsonl.xz"


def sweep_attack(results: Path, model: SweepModel) -> Path:
    return results / "sweep" / f"{model.name}-attack.jsonl.gz"


def score_curve(results: Path, run: ScoreRun) -> Path:
    return results / "score-functions" / f"{run.name}.jsonl"


def shape_rows(results: Path, model: str) -> Path:
    return results / "shapes" / f"{model}.jsonl.xz"


def bound_rows(results: Path, model: str, patch: str) -> Path:
    return results / "bounds" / f"{model}-{patch}.jsonl.gz"


@dataclass(frozen=True)
class Curve:
    """Accuracies of a run over its epochs, as shares; `collapsed` if its loss became NaN."""

    epochs: list[float]
    clean: list[float]
    certified: list[float]
    collapsed: bool


def read_curve(path: Path) -> Curve:
    """A stored curve: the first line says what was trained, the others are accuracies over training."""
    try:
        header, *lines = (json.loads(text) for text in read_texts(path))
        points: list[dict[str, Any]] = [line for line in lines if "certified" in line]
        return Curve(
            [line["step"] / header["steps_per_epoch"] for line in points],
            [line["clean"] for line in points],
            [line["certified"] for line in points],
            header["collapsed"],
        )
    except (OSError, EOFError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path} does not hold accuracies over training ({error}). Copy it again.") from error
