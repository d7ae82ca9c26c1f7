"""Re-check a rows file from its stored scores: rows, digests, bounds, every certificate, every accuracy."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bagcert.errors import UsageError
from bagcert.evaluation.intervals import wilson
from bagcert.evaluation.rows import Lines, parse_lines
from bagcert.evaluation.scores import ScoreFiles, digest
from bagcert.evaluation.verifying.checker import Checker, checker_for
from bagcert.evaluation.verifying.reach import field_of

REMEDY = "make them by bagcert certify --scores"


@dataclass(frozen=True)
class Problem:
    """What does not hold, and of which image; None where it is about the whole file."""

    image: int | None
    words: str


@dataclass(frozen=True)
class Verdict:
    """How many images and certificates were checked, and what was found."""

    images: int
    certificates: int
    problems: list[Problem]
    header: dict[str, Any]


def verify_rows(path: Path, after_image: Callable[[int], None] = lambda images: None) -> Verdict:
    """Check every certificate of a file; `after_image` is told of each image."""
    lines = parse_lines(path)
    header = lines.header
    if not header.get("scores_stored"):
        raise UsageError(f"expected rows with scores in {path}, got none; certify with --scores")
    if not lines.images or not isinstance(header.get("weights_sha256"), str):
        raise UsageError(f"expected rows of images by named weights in {path}, got none; {REMEDY}")
    try:
        return verdict_of(path, lines, after_image)
    except (KeyError, TypeError, IndexError, AttributeError) as error:  # whoever wrote it: another program, or a hand
        raise UsageError(
            f"expected rows as bagcert writes them in {path}, got: {type(error).__name__}: {error}; {REMEDY}"
        ) from error


def verdict_of(path: Path, lines: Lines, after_image: Callable[[int], None]) -> Verdict:
    """What holds and what does not, for a file that has all its parts."""
    header, files = lines.header, ScoreFiles(path, lines.header)
    checkers = [checker_for(header, entry["patch"], entry["rule"]) for entry in header["evaluations"]]
    problems = [*missing(lines), *(Problem(None, words) for words in check_field(header["footprint"]))]
    for row in lines.images:
        problems += [Problem(row[0], words) for words in check_row(row, files, checkers, header)]
        after_image(1)
    problems += [Problem(None, words) for words in check_accuracies(lines)]
    return Verdict(len(lines.images), len(lines.images) * len(checkers), problems, header)


def check_field(footprint: dict[str, Any]) -> Iterator[str]:
    """Whether the layers see as far as the first line says to readers."""
    stated = [min(pair) for pair in zip(footprint["receptive_field"], footprint["image_size"], strict=True)]
    if "layers" in footprint and (found := field_of(footprint)) != stated:
        yield f"layers that see {found[0]}x{found[1]} pixels, file says {stated[0]}x{stated[1]}"


def missing(lines: Lines) -> Iterator[Problem]:
    """Rows that are not there, or there twice."""
    numbers = [row[0] for row in lines.images]
    for number in sorted(set(range(lines.header["images"])) - set(numbers)):
        yield Problem(number, "no row")
    for number, times in sorted(Counter(numbers).items()):
        if times > 1:
            yield Problem(number, "more than one row")


def check_row(row: list[Any], files: ScoreFiles, checkers: list[Checker], header: dict[str, Any]) -> Iterator[str]:
    """What does not hold for one image."""
    number, label, results = row[:3]
    if not 0 <= label < len(header["classes"]):
        yield f"label {label} of {len(header['classes'])} classes"
    scores = files.image(number)
    if scores is None:
        yield "no scores"
        return
    if len(row) < 4 or digest(scores) != row[3]:
        yield "its scores are not those that the row names by digest"
    low, high = header["scores"]["bounds"]
    if scores.min() < low or scores.max() > high:
        yield f"scores outside {low}..{high}"
    exact = scores.astype(np.float64)
    assert np.abs(exact).sum() < 2**52
    for checker, result in zip(checkers, results, strict=True):
        yield from checker.problems(exact, result)


def check_accuracies(lines: Lines) -> Iterator[str]:
    """Whether the last line's accuracies follow from the rows."""
    if lines.footer is None:
        yield "no accuracies: the rows are not finished"
        return
    images = len(lines.images)
    stated = lines.footer.get("results", [])
    if [(entry.get("patch"), entry.get("rule")) for entry in stated] != [
        (entry["patch"], entry["rule"]) for entry in lines.header["evaluations"]
    ]:
        yield "accuracies of other evaluations than the first line names"
        return
    for place, entry in enumerate(stated):
        right = [row[2][place][0] == row[1] for row in lines.images]
        proven = sum(good and row[2][place][1] == 1 for good, row in zip(right, lines.images, strict=True))
        counted = {
            "clean_accuracy": sum(right) / images,
            "certified_accuracy": proven / images,
            "interval": list(wilson(proven, images)),
        }
        for key, value in counted.items():
            if not np.allclose(entry.get(key, -1), value, rtol=0, atol=1e-9):
                yield f"{entry['patch']} {entry['rule']}: {key} {value}, file says {entry.get(key)}"
