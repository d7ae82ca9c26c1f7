"""Made-up rows for every figure, of models that do not exist."""

import json
from pathlib import Path
from typing import Any

import torch

from bagcert.rows.format import AttackRecord, Record
from bagcert.threats import parse_threat
from studies.figures.plan import (
    SCORE_RUNS,
    SWEEP,
    SWEEP_EVALUATIONS,
    ScoreRun,
    SweepModel,
    score_curve,
    sweep_attack,
    sweep_rows,
)
from tests.rows.forging import make_rows

IMAGES = 40  # packing takes most of the time
LABELS = [number % 10 for number in range(IMAGES)]


def stored(path: Path, header: dict[str, Any], records: list[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_rows(path, header, records)


def shares(model: SweepModel) -> tuple[float, float]:
    """Clean accuracy, and how much of it a pixel of the patch's reach costs."""
    return 0.62 + 0.02 * model.receptive_field - 0.1 * model.margin, 0.0024 - 0.0012 * model.margin


def fill_sweep(results: Path) -> None:
    for model in SWEEP:
        clean, cost = shares(model)
        draws = torch.rand(IMAGES, generator=torch.Generator().manual_seed(model.receptive_field)).tolist()
        header = {"model": model.name, "weights_sha256": model.name, "images": IMAGES, "split": "test"}
        header |= {"data": {"name": "made-up", "digest": "0"}}
        entries = [{"patch": entry.patch, "rule": entry.rule} for entry in SWEEP_EVALUATIONS]
        rows, attack = [], []
        for number, (label, draw) in enumerate(zip(LABELS, draws, strict=True)):
            predicted = label if draw < clean else (label + 1) % 10
            proven = {}
            for entry in SWEEP_EVALUATIONS:
                ((height, width),) = parse_threat(entry.patch, (32, 32)).shapes
                reach = (height + model.receptive_field - 1) * (width + model.receptive_field - 1)
                gain = {"largest-region": 1.1, "every-region": 1.0, "two-mask": 0.8}[entry.rule]
                proven[entry] = draw < clean - gain * cost * reach
                rows.append(Record(entry.patch, entry.rule, number, label, predicted, proven[entry]))
            safe = proven[SWEEP_EVALUATIONS[1]]
            attacked = label if safe or draw < clean - 0.5 * cost * (4 + model.receptive_field) ** 2 else 10 - label
            after = attacked if draw < clean else predicted
            attack.append(AttackRecord("5x5", "every-region", number, label, predicted, safe, after, None))
        stored(sweep_rows(results, model), {**header, "evaluations": entries}, rows)
        kind = {"kind": "attack", "patch": "5x5", "rule": "every-region"}
        stored(sweep_attack(results, model), header | kind, attack)


def fill_curves(results: Path) -> None:
    for run in SCORE_RUNS:
        header = {"kind": "training", "steps_per_epoch": 90, "collapsed": run == ScoreRun("sigmoid", 1)}
        lines: list[Any] = [header]
        for step in range(45, 901, 45):
            share = 0.7 * step / (step + 90) if run.step != "sigmoid" or run.seed == 0 else 0.1
            lines.append({"step": step, "clean": share + 0.01 * run.seed, "certified": share / 2})
            if header["collapsed"] and step > 200:
                break
        path = score_curve(results, run)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
