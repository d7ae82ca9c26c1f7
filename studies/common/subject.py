"""Certify or attack a model and keep the rows, packed, where the figures look for them."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from bagcert.attacks import AttackSettings
from bagcert.data import Source
from bagcert.defense import Defense, load
from bagcert.program import EXACT, usual_device
from bagcert.rows.attacked import AttackRows, read_attack_rows, write_attack_rows
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import Evaluation, meta_path, read_meta, rows_name
from bagcert.rows.header import describe, fitting_dataset
from bagcert.rows.resume import store
from bagcert.rows.write import Plan, write_rows


@dataclass(frozen=True, eq=False)
class Subject:
    """A model on its device, the test images, and the header of its rows."""

    defense: Defense
    source: Source
    header: dict[str, Any]

    @staticmethod
    def find(model: str | Path, name: str, data_dir: Path | None, program: str = EXACT) -> "Subject":
        """A shipped model or a run folder; its rows will say `name`."""
        defense = load(model, usual_device(), program=program)
        dataset = fitting_dataset(defense.card["data"]["name"], defense, data_dir)
        return Subject(defense, dataset.split("test"), describe(name, defense, dataset, "test"))

    def certify(self, evaluations: Iterable[Evaluation], images: int, work: Path, out: Path) -> Rows:
        """Rows of the first images, unless they are there; `work` holds what an interrupted call has done."""
        if not self.is_in(out):
            plan = Plan(list(evaluations), min(images, len(self.source)))
            with packed(work, out) as plain:
                write_rows(plain, self.defense, plan, self.source, self.header)
        return read_rows(out)

    def attack(
        self, evaluation: Evaluation, images: int, settings: AttackSettings, work: Path, out: Path
    ) -> AttackRows:
        """Rows of an attack on the first images, unless they are there."""
        if not self.is_in(out):
            defense = self.defense.against(evaluation.patch, evaluation.rule)
            facts = {**self.header, "images": min(images, len(self.source))}
            with packed(work, out) as plain:
                write_attack_rows(plain, defense, self.source, facts, settings)
        return read_attack_rows(out)

    def is_in(self, path: Path) -> bool:
        """Are these rows of the same weights? A retrained model needs new rows."""
        there = path.exists() and meta_path(path).exists()
        return there and bool(read_meta(path).header["weights_sha256"] == self.header["weights_sha256"])


@contextmanager
def one_precision(subject: Subject) -> Iterator[Subject]:
    """Certify, attack and measure in one arithmetic, which the rows name: bfloat16 on a GPU, as in training."""
    device = subject.defense.device.type
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        program = subject.defense.program
        yield replace(subject, header={**subject.header, **program.describe(), "precision": program.dtype})


@contextmanager
def packed(work: Path, out: Path) -> Iterator[Path]:
    """A plain file to write rows to, packed once it is complete; the same rows give the same bytes."""
    plain = work / f"{rows_name(out)}.jsonl"
    work.mkdir(parents=True, exist_ok=True)
    yield plain
    store(plain, out)
