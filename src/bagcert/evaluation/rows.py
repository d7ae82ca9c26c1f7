"""Rows: one JSON line per image, written as they come, from which every table can be rebuilt without the model.

The first line says what was certified, with what, and lists the evaluations (patch and rule). Each further line holds
an image's number, its label, and for each evaluation the predicted class and whether it is certified.
"""

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Source
from bagcert.defenses.defense import Defense
from bagcert.errors import UsageError
from bagcert.rules import Certificate

BATCH = 250  # images; an interrupted call continues at a multiple of it


@dataclass(frozen=True)
class Evaluation:
    """One patch, certified by one rule; a masking rule is built anew for each patch."""

    patch: str
    rule: str


@dataclass(frozen=True, eq=False)
class Rows:
    """What a rows file holds: for each evaluation a certificate over the same images."""

    header: dict[str, Any]
    labels: Tensor  # int64 [n]
    results: dict[Evaluation, Certificate]


def write_rows(
    path: Path,
    defense: Defense,
    evaluations: list[Evaluation],
    source: Source,
    facts: dict[str, Any],
    after_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Certify every image of `source` and write its row; what an interrupted call wrote is kept and continued.

    One forward pass per image serves all evaluations.
    """
    header = {**facts, "images": len(source), "evaluations": [asdict(entry) for entry in evaluations]}
    defenses = [defense.against(entry.patch, entry.rule) for entry in evaluations]
    done = resume(path, header)
    after_batch(done)
    with path.open("a", encoding="utf-8") as file:
        for batch in source.batches(BATCH, "cpu", start=-(-done // BATCH)):
            scores = defense.scores(batch.images)
            results = []
            for each in defenses:
                certificate = each.certify_integers(scores, exact=False)
                results.append(torch.stack([certificate.predicted, certificate.certified.long()], dim=1))
            for number, label, result in zip(
                batch.index.tolist(), batch.labels.tolist(), torch.stack(results, dim=1).tolist(), strict=True
            ):
                file.write(json.dumps([number, label, result], separators=(",", ":")) + "\n")
            file.flush()
            os.fsync(file.fileno())
            after_batch(len(batch.labels))


def resume(path: Path, header: dict[str, Any]) -> int:
    """How many images the file holds already, in whole batches; starts a new file where there is none.

    A line that a crash cut off is dropped.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text(json.dumps(header) + "\n", encoding="utf-8")
        return 0
    lines = [line for line in path.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]
    if not lines or json.loads(lines[0]) != header:
        raise UsageError(f"expected rows of the same model, data and evaluations in {path}, got others; move it away")
    written = len(lines) - 1
    kept = written if written == header["images"] else written // BATCH * BATCH
    part = path.with_name(path.name + ".part")
    part.write_text("".join(lines[: kept + 1]), encoding="utf-8")
    part.replace(path)
    return kept


def read_rows(path: Path) -> Rows:
    """Rows from a file, plain or gzipped; a file that does not hold every image is refused."""
    lines = read_lines(path)
    try:
        header = json.loads(next(lines))
        evaluations = [Evaluation(**entry) for entry in header["evaluations"]]
        table = [json.loads(line) for line in lines]
    except (StopIteration, json.JSONDecodeError, KeyError, TypeError, EOFError, OSError) as error:
        raise UsageError(f"expected rows of an evaluation in {path}, got something else: {error}") from error
    if len(table) != header["images"] or [row[0] for row in table] != list(range(len(table))):
        raise UsageError(f"expected {header['images']} rows in {path}, got {len(table)}; certify to the end")
    results = torch.tensor([row[2] for row in table])  # n evaluations 2
    certificates = {
        entry: Certificate(results[:, place, 0], results[:, place, 1] == 1) for place, entry in enumerate(evaluations)
    }
    return Rows(header, torch.tensor([row[1] for row in table]), certificates)


def read_lines(path: Path) -> Iterator[str]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        yield from file
