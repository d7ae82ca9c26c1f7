"""Re-check a rows file from its stored scores: rows, digests, bounds, every certificate, every accuracy."""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from bagcert.errors import UsageError
from bagcert.rows.accuracy import wilson
from bagcert.rows.format import CERTIFICATES, Evaluation, Meta, Record, read_meta, read_records
from bagcert.rows.shards import numbers_of
from bagcert.rows.stored_scores import ScoreFiles, digest
from bagcert.rows.verify.conditions import CONDITIONS, VIEW_CONDITIONS, Finding, covered, with_alerts
from bagcert.rows.verify.painted import Masks, patches_at_once
from bagcert.rows.verify.reach import NONE, Floats, Reach, blind_views, field_of, maximal_reach, tables_of

REMEDY = "Make it again with bagcert certify --scores."


def checker_for(header: dict[str, Any], patch: str, rule: str, masks: Masks) -> "Checker":
    """The checker of this evaluation; one rule is for scores of views, and takes no others."""
    known = [*CONDITIONS, *VIEW_CONDITIONS]
    name, colon, above = rule.partition(":")
    if name not in known or (colon and not (above.isdigit() and name in CONDITIONS and CONDITIONS[name].alerts)):
        raise UsageError(f"Rule '{rule}' in the rows cannot be verified. Certify by one of {', '.join(known)}.")
    views = name in VIEW_CONDITIONS
    if views and "hidden" not in header["footprint"]:
        raise UsageError(
            f"Rule '{rule}' does not fit the scores in the rows, which are not of views. Certify by another rule."
        )
    count = patches_at_once(patch)[0]
    if count > (1 if views else CONDITIONS[name].patches):
        raise UsageError(
            f"Rule '{rule}' in the rows cannot be verified for {count} patches at once. Certify by another."
        )
    return ViewChecker(header, patch, rule, masks) if views else RegionChecker(header, patch, rule, masks)


def exact_bounds(header: dict[str, Any]) -> tuple[int, int]:
    """The bounds of the scores, with which every sum stays exact: beyond 2**63 it would begin again below 0."""
    low, high = header["scores"]["bounds"]
    most = 2**50 // math.prod(header["footprint"]["grid"])
    if not (type(low) is type(high) is int and -most <= low < high <= most):
        raise UsageError(
            f"The bounds of the scores in the rows must be two whole numbers in -{most}..{most}, lowest first, but are "
            f"{low!r:.40} and {high!r:.40}. {REMEDY}"
        )
    return low, high


class Checker(ABC):
    """One patch and one rule."""

    detects = False  # what its rule promises is the class or an alert

    def __init__(self, header: dict[str, Any], patch: str, rule: str) -> None:
        self.patch, self.rule, self.footprint = patch, rule, header["footprint"]
        self.low, self.high = exact_bounds(header)

    def problems(self, scores: Floats, record: Record) -> list[str]:
        """What does not hold; nothing if all does."""
        claimed, square = record.predicted, record.certified_square or 0
        if not 0 <= claimed < len(scores):
            return [f"class {claimed} of {len(scores)}"]
        finding = self.finding(scores, claimed)
        found = ["views are unanimous about two classes"] if finding.split else []
        if finding.predicted != claimed:
            found.append(f"predicted {finding.predicted}, row says {claimed}")
        certified = finding.lead > 0 and not self.detects
        if certified != record.certified:
            found.append(f"{'certified' if certified else 'not certified'}, row says otherwise")
        for words in ("alert", "detectable"):
            if getattr(finding, words) != getattr(record, words):
                found.append(f"{words} {getattr(finding, words)}, row says {getattr(record, words)}")
        if record.lead != finding.lead:
            found.append(f"lead {finding.lead}, row says {record.lead}")
        if square > 0 and not self.square_holds(scores, claimed, square, finding):
            found.append(f"no proof for {square}x{square}")
        return [f"{self.patch} {self.rule}: {words}" for words in found]

    @abstractmethod
    def finding(self, scores: Floats, claimed: int) -> Finding:
        """Prediction, and what is left of the claimed class after the worst attack."""

    @abstractmethod
    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        """Is the claimed class safe from every square of this side?"""


@final
class RegionChecker(Checker):
    """Scores that each see a part of the image, with what the patch can reach."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str, masks: Masks) -> None:
        super().__init__(header, patch, rule)
        name, colon, above = rule.partition(":")
        self._condition = CONDITIONS[name]
        if self.low < 0 and not self._condition.signed:
            raise UsageError(
                f"Rule '{rule}' in the rows knows no scores below 0, but they start at {self.low}. {REMEDY}"
            )
        self.detects = self._condition.detects
        self._above = int(above) if colon else 0 if self.detects else None
        self._reach = maximal_reach(self.footprint, patch, masks)
        self._squares: dict[int, Reach] = {}

    def finding(self, scores: Floats, claimed: int) -> Finding:
        finding = self.find(scores, claimed, self._reach)
        if self._above is None:
            return finding
        return with_alerts(finding, scores, claimed, self._reach, self._reach, self._above)

    def find(self, scores: Floats, claimed: int, reach: Reach) -> Finding:
        """Prediction and lead against patches with this reach; masks stay those of the evaluation's own patch."""
        settled = (self._above,) if self.detects else ()
        return self._condition.find(scores, claimed, reach, self._reach, (self.low, self.high), *settled)

    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        if side > min(self.footprint["image_size"]):
            return False
        if side not in self._squares:
            self._squares[side] = maximal_reach(self.footprint, f"{side}x{side}")
        squares = self._squares[side]
        if self._condition.masks and not squares.within(self._reach).any(axis=1).all():
            return False  # larger than the masks
        if finding.robust is not None:  # each square must lie inside a mask under which the proof holds
            return covered(squares, self._reach, finding.robust)
        return self.find(scores, claimed, squares).lead > 0


@final
class ViewChecker(Checker):
    """Scores of views that each hide a part of the image, with the placements that each is blind to."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str, masks: Masks) -> None:
        super().__init__(header, patch, rule)
        self._blind = {patch: blind_views(self.footprint, patch, masks)}

    def finding(self, scores: Floats, claimed: int) -> Finding:
        return self.find(scores, claimed, self.patch)

    def find(self, scores: Floats, claimed: int, patch: str) -> Finding:
        """Prediction and lead against this patch, by the views of the evaluation's own."""
        if patch not in self._blind:
            self._blind[patch] = blind_views(self.footprint, patch)
        return VIEW_CONDITIONS[self.rule](scores, claimed, self._blind[patch], self.high)

    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        fits = side <= min(self.footprint["image_size"])
        return fits and self.find(scores, claimed, f"{side}x{side}").lead > 0


@dataclass(frozen=True)
class Problem:
    """What does not hold, and for which image; None if it is about the whole file."""

    image: int | None
    words: str


@dataclass(frozen=True)
class Verdict:
    """How many images and certificates were checked, and what was found."""

    images: int
    certificates: int
    problems: list[Problem]
    header: dict[str, Any]


def verify_rows(path: Path, after_image: Callable[[int], None] = lambda images: None, masks: Masks = NONE) -> Verdict:
    """Check every certificate of a file; `after_image(1)` is called after each image. `masks` are those from files."""
    meta = read_meta(path, CERTIFICATES)
    if not meta.scores_stored:
        raise UsageError(f"{path} was certified without scores. Certify with --scores.")
    records = list(read_records(path, meta))
    if not records or not isinstance(meta.header.get("weights_sha256"), str):
        raise UsageError(f"{path} holds no images or does not name their weights. {REMEDY}")
    try:
        return verdict_of(path, meta, records, after_image, masks)
    except UsageError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # by another program or hand
        raise UsageError(f"{path} is not as bagcert writes rows ({type(error).__name__}: {error}). {REMEDY}") from error


def verdict_of(
    path: Path, meta: Meta, records: list[Record], after_image: Callable[[int], None], masks: Masks
) -> Verdict:
    """What holds and what does not, for a file that has all its parts."""
    header, files = meta.header, ScoreFiles(path, meta.header)
    checkers = {entry: checker_for(header, entry.patch, entry.rule, masks) for entry in meta.evaluations}
    problems = [*missing(meta, records), *(Problem(None, words) for words in check_field(header["footprint"]))]
    by_image: dict[int, list[Record]] = {}
    for record in records:
        by_image.setdefault(record.image, []).append(record)
    for number, found in by_image.items():
        words = dict.fromkeys(check_image(number, found, files, checkers, header))  # each once
        problems += [Problem(number, each) for each in words]
        after_image(1)
    problems += [Problem(None, words) for words in check_accuracies(meta, records)]
    return Verdict(len(by_image), len(records), problems, header)


def check_field(footprint: dict[str, Any]) -> Iterator[str]:
    """Whether the outputs see as far as the header says to readers."""
    stated = [min(pair) for pair in zip(footprint["receptive_field"], footprint["image_size"], strict=True)]
    made = tables_of(footprint)
    if made and (found := field_of(footprint)) != stated:
        yield f"{' and '.join(made)} that see {found[0]}x{found[1]} pixels, file says {stated[0]}x{stated[1]}"


def missing(meta: Meta, records: list[Record]) -> Iterator[Problem]:
    """Records that are not there, there twice, or of an evaluation that nobody asked for."""
    counts = Counter((record.image, Evaluation(record.patch, record.rule)) for record in records)
    present, wanted = {image for image, _ in counts}, numbers_of(meta.header)
    for image in wanted:
        if image not in present:
            yield Problem(image, "no row")
            continue
        for entry in meta.evaluations:
            if counts[image, entry] == 0:
                yield Problem(image, f"{entry.patch} {entry.rule}: no row")
    for (image, entry), times in sorted(counts.items(), key=lambda item: item[0][0]):
        if times > 1:
            yield Problem(image, f"{entry.patch} {entry.rule}: more than one row")
        if image not in wanted or entry not in meta.evaluations:
            yield Problem(image, f"{entry.patch} {entry.rule}: nobody asked for this row")


def check_image(
    number: int,
    records: list[Record],
    files: ScoreFiles,
    checkers: dict[Evaluation, Checker],
    header: dict[str, Any],
) -> Iterator[str]:
    """What does not hold for one image."""
    for label in {record.label for record in records}:
        if not 0 <= label < len(header["classes"]):
            yield f"label {label} of {len(header['classes'])} classes"
        if label != records[0].label:
            yield "more than one label"
    scores = files.image(number)
    if scores is None:
        yield "no scores"
        return
    if any(record.scores_sha256 != digest(scores) for record in records):
        yield "its scores are not those that the row names by digest"
    low, high = header["scores"]["bounds"]
    if scores.min() < low or scores.max() > high:
        yield f"scores outside {low}..{high}"
    exact = scores.astype(np.float64)
    assert np.abs(exact).sum() < 2**52
    for record in records:
        checker = checkers.get(Evaluation(record.patch, record.rule))
        yield from checker.problems(exact, record) if checker is not None else ()


def check_accuracies(meta: Meta, records: list[Record]) -> Iterator[str]:
    """Whether the accuracies in the file beside the rows follow from them."""
    if meta.results is None:
        yield "no accuracies: the rows are not finished"
        return
    if [(entry.get("patch"), entry.get("rule")) for entry in meta.results] != [
        (entry.patch, entry.rule) for entry in meta.evaluations
    ]:
        yield "accuracies of other evaluations than the header names"
        return
    by_entry: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_entry.setdefault((record.patch, record.rule), []).append(record)
    for entry in meta.results:
        mine = by_entry.get((entry["patch"], entry["rule"]), [])
        condition = CONDITIONS.get(entry["rule"].partition(":")[0])
        detects = condition is not None and condition.detects  # then an alert is an error, and proven is detectable
        right = [each for each in mine if each.predicted == each.label and not (detects and each.alert)]
        proven = sum(bool(each.detectable if detects else each.certified) for each in right)
        counted: dict[str, Any] = {
            "clean_accuracy": len(right) / meta.images,
            "certified_accuracy": proven / meta.images,
            "interval": list(wilson(proven, meta.images)),
        }
        if any(each.alert is not None for each in mine):
            counted["alerted"] = sum(bool(each.alert) for each in mine) / meta.images
        for key, value in counted.items():
            if not np.allclose(entry.get(key, -1), value, rtol=0, atol=1e-9):
                yield f"{entry['patch']} {entry['rule']}: {key} {value}, file says {entry.get(key)}"
