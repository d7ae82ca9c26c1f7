"""Rows of certificates and of an attack, for reports."""

from pathlib import Path
from typing import Any

import bagcert
from bagcert.rows.certified import Rows
from bagcert.rows.format import AttackRecord, Evaluation
from bagcert.rows.header import describe
from bagcert.rows.write import Plan, write_rows
from tests.rows.digit_runs import DIGITS
from tests.rows.forging import make_rows

PATCHES = ("1x1", "2x2", "1x4", "4x1")
RULES = ("every-region", "two-mask")
FACTS = {"versions": {"torch": "2"}, "device": "CPU"}


def certify(run: Path, name: str, scores: bool, images: int = 60) -> Path:
    defense = bagcert.load(run)
    evaluations = [Evaluation(patch, rule) for patch in PATCHES for rule in RULES]
    path = run.parent / f"{name}.jsonl"
    header = {**describe(f"runs/{name}", defense, DIGITS, "test"), **FACTS}
    write_rows(path, defense, Plan(evaluations, images, scores), DIGITS.split("test"), header)
    return path


def attack(path: Path, rows: Rows, **changes: Any) -> Path:
    """An attack on the first ten images that changes the class of those that are not certified."""
    certificate = rows.results[Evaluation("1x1", "two-mask")]
    settings = {"steps": 7, "step_size": 0.025, "sweep": True, "paper_place": False}
    header = {**rows.header, "kind": "attack", "images": 10, "patch": "1x1", "rule": "two-mask", "attack": settings}
    header |= changes
    records = []
    for number in range(10):
        predicted, proven = int(certificate.predicted[number]), bool(certificate.certified[number])
        after = predicted if proven else (predicted + 1) % 10
        answers = (number, int(rows.labels[number]), predicted, proven, after)
        records.append(AttackRecord(header["patch"], header["rule"], *answers, None if proven else (0, 0, 1, 1)))
    return make_rows(path, header, records)
