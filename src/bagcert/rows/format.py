"""Rows: one JSON line per image, from which every table and figure can be rebuilt without the model.

line 1      {...}: what was certified with what, and the evaluations (patch and rule); see `header.py`
each image  [number, label, [result of each evaluation], digest of its scores]
            result: [predicted, certified] or, with scores, [predicted, certified, lead, weakest rival, weakest place,
            second place or null, side of the largest certified square]; a place is [row, column, height, width] in
            pixels. The digest is there with scores only.
last line   {"results": [...]}: the accuracies, once all images are there

Files without the last line, and gzipped ones, are read as well.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.files import read_lines
from bagcert.rows.accuracy import Accuracies, accuracies, wilson
from bagcert.rules import Certificate

# What a reader takes in before it refuses; a proof of each of ImageNet's training images fits.
MOST_BYTES = 2**28
MOST_LINES = 2**21
LONGEST_LINE = 2**20


@dataclass(frozen=True)
class Evaluation:
    """One patch, certified by one rule; a masking rule is built anew for each patch."""

    patch: str
    rule: str


@dataclass(frozen=True, eq=False)
class Rows:
    """What a rows file holds: for each evaluation a certificate over the same images."""

    path: Path
    header: dict[str, Any]
    labels: Tensor  # int64 [n]
    results: dict[Evaluation, Certificate]
    sides: dict[Evaluation, Tensor] = field(default_factory=dict)  # int64 [n] of the largest certified squares

    @property
    def model(self) -> str:
        """The model's name; rows of a shipped model are named after the folder they lie in."""
        return str(self.header.get("model", self.path.resolve().parent.name))

    def accuracies(self, evaluation: Evaluation) -> Accuracies:
        return accuracies(self.results[evaluation], self.labels)


@dataclass(frozen=True)
class Lines:
    """The parsed lines of a rows file."""

    header: dict[str, Any]
    images: list[list[Any]]
    footer: dict[str, Any] | None


def summary(rows: Rows) -> list[dict[str, Any]]:
    """The accuracies of every evaluation, with 95 % intervals, as the last line and `--json` give them."""
    table = []
    for entry in rows.results:
        shares = rows.accuracies(entry)
        table.append(
            {
                "patch": entry.patch,
                "rule": entry.rule,
                "clean_accuracy": shares.clean,
                "certified_accuracy": shares.certified,
                "interval": list(wilson(round(shares.certified * shares.images), shares.images)),
            }
        )
    return table


def read_rows(path: Path) -> Rows:
    """Rows from a file; one that does not hold every image is refused."""
    lines = parse_lines(path)
    numbers = [row[0] for row in lines.images]
    if numbers != list(range(lines.header["images"])):
        raise UsageError(
            f"expected {lines.header['images']} rows in {path}, got {len(numbers)}; certify to the end: the same "
            "command continues"
        )
    return to_rows(path, lines)


def to_rows(path: Path, lines: Lines) -> Rows:
    """The numbers of parsed lines as tensors."""
    evaluations = [Evaluation(**entry) for entry in lines.header["evaluations"]]
    columns = list(zip(*(row[2] for row in lines.images), strict=True)) or [()] * len(evaluations)
    try:
        certificates = {
            entry: to_certificate(column) for entry, column in zip(evaluations, columns, strict=True) if column
        }
        detailed = bool(lines.header.get("scores_stored"))
        sides = {
            entry: torch.tensor([result[6] for result in column])
            for entry, column in zip(evaluations, columns, strict=True)
            if detailed
        }
        labels = torch.tensor([row[1] for row in lines.images], dtype=torch.int64)
    except (ValueError, TypeError, IndexError, RuntimeError) as error:
        raise UsageError(
            f"expected numbers for every evaluation in {path}, got: {error}; make it by bagcert certify"
        ) from error
    return Rows(path, lines.header, labels, certificates, sides)


def to_certificate(results: tuple[list[Any], ...]) -> Certificate:
    """One evaluation's results over all images."""

    def column(place: int) -> Tensor | None:
        values = [result[place] for result in results] if len(results[0]) > 2 else [None]
        return None if values[0] is None else torch.tensor(values)

    predicted, certified = torch.tensor([result[:2] for result in results], dtype=torch.int64).unbind(dim=1)
    return Certificate(predicted, certified == 1, column(2), column(4), column(5), column(3))


def parse_lines(path: Path) -> Lines:
    """The lines of a rows file; a last line that a crash cut off is left out."""
    try:
        texts = list(read_texts(path))
        header = json.loads(texts[0])
        evaluations = [Evaluation(**entry) for entry in header["evaluations"]]
        if type(header["images"]) is not int or header["images"] < 1 or header.get("kind") == "attack":
            raise ValueError(f"{header['images']!r} images of kind {header.get('kind')}")
        whole = texts[-1].endswith("\n")
        parsed = [json.loads(text) for text in (texts[1:] if whole else texts[1:-1])]
    except (OSError, EOFError, IndexError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected rows of an evaluation in {path}, got something else: {error}; make it by bagcert certify"
        ) from error
    footer = parsed.pop() if parsed and isinstance(parsed[-1], dict) else None
    for row in parsed:
        if not is_row(row, len(evaluations), 7 if header.get("scores_stored") else 2):
            raise UsageError(
                f"expected a row with {len(evaluations)} results in {path}, got {json.dumps(row)[:80]}; "
                "make it by bagcert certify"
            )
    return Lines(header, parsed, footer)


def is_row(row: Any, evaluations: int, width: int) -> bool:
    """Whether a line has the form that the top of this file describes, `width` entries to a result."""
    if not (isinstance(row, list) and len(row) in (3, 4) and isinstance(row[2], list) and len(row[2]) == evaluations):
        return False
    numbers = [row[0], row[1]]
    for result in row[2]:
        if not isinstance(result, list) or len(result) != width:
            return False
        numbers += [*result[:4], *result[6:]]
        for place in result[4:6]:
            numbers += place if isinstance(place, list) else []
    return all(type(number) is int for number in numbers)


def read_texts(path: Path) -> Iterator[str]:
    """The lines of a plain or gzipped file of rows, with their ends; ValueError if it is larger than rows are."""
    return read_lines(path, MOST_BYTES, MOST_LINES, LONGEST_LINE)


def file_kind(path: Path) -> str:
    """ "attack" or "certificates", as the first line says."""
    try:
        header = json.loads(next(read_texts(path)))
        return str(header.get("kind", "certificates"))
    except (OSError, EOFError, StopIteration, AttributeError, ValueError) as error:
        raise UsageError(
            f"expected rows of an evaluation in {path}, got something else: {error}; make it by bagcert certify"
        ) from error
