"""Training for a study: silent, only what is not done yet, and what the run logged; and a schedule of its own loops."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import torch

from bagcert.training.loop import RunOptions, train
from bagcert.training.recipe import Recipe
from bagcert.training.run import RunFolder
from bagcert.training.schedule import ScheduleConfig

SCHEDULE = ScheduleConfig(shape="linear", epochs=10, warmup_epochs=1)  # only the share of the warm-up counts


def train_quietly(recipe: Recipe, options: RunOptions) -> None:
    """Train what is left, silently: several processes would print at once."""
    if not RunFolder(options.out).config.exists():
        with contextlib.redirect_stdout(io.StringIO()):
            train(recipe, options)
        # Training tries kernels for its one shape; an attack has a new shape at almost every step.
        torch.backends.cudnn.benchmark = False


def read_log(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def steady_mean(log: list[dict[str, Any]], key: str) -> float:
    """The mean of a number that is logged with the steps, without the first line, which includes compilation."""
    values = [line[key] for line in log if "loss" in line][1:]
    return float(sum(values) / len(values)) if values else 0.0
