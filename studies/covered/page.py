"""Fill docs/imagenet.md from the stored rows of covered networks.

python -m studies covered page
"""

import json
from itertools import product
from pathlib import Path

from bagcert.files import write_atomically
from bagcert.report.tables import percent
from bagcert.rows.accuracy import wilson
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import Evaluation
from studies.common.results import RESULTS, ROOT
from studies.common.tables import Lines, put_table
from studies.covered.command import PATCHES, RULES
from studies.covered.networks import WEIGHTS
from studies.covered.trained import LOSSES

PAGE = ROOT / "docs" / "imagenet.md"
MASKS = (6, 3)
TASKS = ("classify", "certify", "detect")


def folder() -> Path:
    return ROOT / RESULTS / "covered"


def jobs() -> list[tuple[str, int, str]]:
    return [(name, masks, patch) for name in WEIGHTS for masks in MASKS for patch in sorted(PATCHES)]


def rows_of(name: str, masks: int, patch: str) -> Rows | None:
    path = folder() / f"{name}-k{masks}-{patch}.jsonl.gz"
    return read_rows(path) if path.exists() else None


def shares(rows: Rows, patch: str, rule: str) -> str:
    """Clean and certified accuracy, and the interval of the latter."""
    found = rows.accuracies(Evaluation(patch, rule))
    low, high = wilson(round(found.certified * len(rows)), len(rows))
    return f"{percent(found.clean)} / {percent(found.certified)} ({percent(low)}–{percent(high)})"


def accuracies() -> Lines:
    """What each network proves."""
    heads = ("network", "k", "patch", "photographs", "device", "network alone", "recovered", "detected, t = 0")
    lines: Lines = [heads]
    for name, masks, patch in jobs():
        rows = rows_of(name, masks, patch)
        if rows is None:
            continue
        detected = rows.results[Evaluation(patch, "detect")]
        alone = detected.predicted == rows.labels
        about = (name, str(masks), f"{patch} ({PATCHES[patch]})", f"{len(rows):,}", str(rows.header["device"]))
        found = (shares(rows, patch, rule) for rule in ("unanimous", "detect"))
        lines.append((*about, percent(float(alone.double().mean())), *found))
    return lines


def thresholds() -> Lines:
    """Detection with fewer alerts, k = 6 against 2 %."""
    rules = [rule for rule in RULES if rule.startswith("detect")]
    lines: Lines = [("network", *(f"t = {int(rule.partition(':')[2] or 0) / 256:g}" for rule in rules))]
    for name in WEIGHTS:
        rows = rows_of(name, MASKS[0], "32x32")
        if rows is not None:
            found = (rows.accuracies(Evaluation("32x32", rule)) for rule in rules)
            lines.append((name, *(f"{percent(each.clean)} / {percent(each.certified)}" for each in found)))
    return lines


def costs() -> Lines:
    """Passes and seconds per photograph against 2 %, one line for each device that was timed."""
    lines: Lines = [("network", "k", "device", "photographs", *(f"{task}: passes, seconds" for task in TASKS))]
    for name, masks, kind in product(WEIGHTS, MASKS, ("cuda", "cpu")):
        path = folder() / f"{name}-k{masks}-32x32-time-{kind}.json"
        if path.exists():
            facts = json.loads(path.read_text(encoding="utf-8"))
            each = [f"{facts[task]['passes']:.0f}, {facts[task]['seconds']:.3g}" for task in TASKS]
            lines.append((name, str(masks), facts["device"], str(facts["photographs"]), *each))
    return lines


def trainings() -> Lines:
    """What training under masks brings."""
    lines: Lines = [("training", "k", "steps", "network alone", "recovered", "detected, t = 0")]
    for loss, masks in product(LOSSES, MASKS):
        path = folder() / f"trained-{loss}-k{masks}.jsonl.gz"
        if not path.exists():
            lines.append((loss, str(masks), *["–"] * 4))
            continue
        rows = read_rows(path)
        recovered, detected = rows.results
        alone = float((rows.results[detected].predicted == rows.labels).double().mean())
        steps = json.loads((folder() / f"trained-{loss}.json").read_text(encoding="utf-8"))["steps"]
        found = (shares(rows, each.patch, each.rule) for each in (recovered, detected))
        lines.append((loss, str(masks), f"{steps:,}", percent(alone), *found))
    return lines


TABLES = {"covered": accuracies, "thresholds": thresholds, "costs": costs, "trained": trainings}


def filled() -> str:
    """The page with its tables up to date."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in TABLES.items():
        text = put_table(text, name, table())
    return text


def page() -> None:
    """Bring the page up to date."""
    write_atomically(PAGE, filled().encode())
    print(f"wrote {PAGE.relative_to(ROOT)}")
