"""Detection by the shipped models: clean and certified accuracy at several rates of false alerts.

    python -m studies detection measure cifar10-small   (all test images; hours on two cores, minutes on a GPU)
    python -m studies detection page                    (docs/detection.md from studies/results/detection/)
    python -m studies detection cards                   (thresholds for 1 % and 5 % onto the cards of the models)

The shipped models were trained on their validation split, so no threshold can be chosen there. Each half of the test
images gets the threshold of the other half; the one on the card is chosen on all of them.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from bagcert.files import write_atomically
from bagcert.program import EXACT
from bagcert.report.tables import percent
from bagcert.rows.thresholds import Threshold, store_threshold
from bagcert.stored_models import model_folder, shipped_models
from studies.common.commands import ProgramOption
from studies.common.results import BENCHMARKS, RESULTS, ROOT, provenance, write_results
from studies.common.subject import Subject
from studies.common.tables import Lines, put_table
from studies.detection.measure import CURVE, PATCHES, RATES, THREATS, TWO
from studies.detection.measure import measure as measured

ALL = 10_000  # test images
ENOUGH = 900  # of them for a rate of 1 %
FOLDER = RESULTS / "detection"
PAGE = ROOT / "docs" / "detection.md"
Out = Annotated[Path, typer.Option(help="the folder of results")]


def measure(
    model: Annotated[str, typer.Argument(help="a shipped model or a run folder")],
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=2)] = ALL,
    scores: Annotated[Path | None, typer.Option(help="folder of scores that `bagcert certify --scores` made")] = None,
    patch: Annotated[list[str] | None, typer.Option(help="all threats of the page if none is given")] = None,
    program: ProgramOption = EXACT,
    out: Annotated[Path | None, typer.Option(help="results/detection/MODEL.json")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Recovery and detection of one model, from one pass over the test images; stored every thousand images."""
    subject = Subject.find(model, model, data_dir, program)
    defense, count = subject.defense, min(images, len(subject.source))
    threats = patch or list(THREATS)
    options = [model, "--images", count, "--program", program, *(f"--patch={each}" for each in patch or [])]
    head = provenance("studies detection measure", options, defense.device)
    facts = {"arithmetic": subject.header["arithmetic"], "weights_sha256": subject.header["weights_sha256"]}
    unit = {"unit": defense.scorer.step.unit}
    path = out or FOLDER / f"{Path(model).name}.json"
    for seen, found in measured(defense, subject.source, count, threats, scores):
        write_results(path, {**head, **facts, **unit, "images": seen}, {"patches": found})


def results(folder: Path, whole: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """The stored results with their models, in the order of the shipped ones; if `whole`, those of all test images.

    A model may have a second file, of two patches at once.
    """
    paths = [(model, folder / f"{model}{ending}.json") for model in shipped_models() for ending in ("", "-two")]
    found = [(model, json.loads(path.read_text(encoding="utf-8"))) for model, path in paths if path.exists()]
    return [(model, result) for model, result in found if not whole or result["images"] == ALL]


def measured_of(result: dict[str, Any], threats: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a result says of each of these threats that it has."""
    return ((patch, result["patches"][patch]) for patch in threats if patch in result["patches"])


def accuracy_lines(folder: Path) -> Lines:
    """Clean / certified accuracy, for recovery and for detection."""
    lines: Lines = [
        ("model", "patch", "images", "recovery: two-mask", "detection, t = 0", *(f"{r} false alerts" for r in RATES))
    ]
    for model, result in results(folder):
        for patch, found in measured_of(result, PATCHES):
            shares = (pair(found["recovery"]), *detection_pairs(result, found))
            lines.append((f"`{model}`", patch, f"{result['images']:,}", *shares))
    return lines


def two_lines(folder: Path) -> Lines:
    """The same for detection of two patches at once, with the alerts."""
    heads = ("detection, t = 0", *(f"{rate} false alerts" for rate in RATES))
    lines: Lines = [("model", "threat", "first images", *heads, "alerts at t = 0 %")]
    for model, result in results(folder):
        for patch, found in measured_of(result, TWO):
            shares = detection_pairs(result, found)
            lines.append(
                (f"`{model}`", f"`{patch}`", f"{result['images']:,}", *shares, percent(found["t=0"]["alerted"]))
            )
    return lines


def detection_pairs(result: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """At a threshold of 0 and at each rate; no rate if there are too few images to choose a threshold by."""
    rates = [pair(found[rate]) if result["images"] >= ENOUGH else "" for rate in RATES]
    return [pair(found["t=0"]), *rates]


def pair(shares: dict[str, float]) -> str:
    return f"{percent(shares['clean'])} / {percent(shares['certified'])}"


def curve_lines(folder: Path) -> Lines:
    """Certified detection against the wanted rate of false alerts."""
    lines: Lines = [("model", "patch", *CURVE, "t = 0")]
    for model, result in results(folder, whole=True):
        for patch, found in measured_of(result, PATCHES):
            points = [*(found["curve"][rate] for rate in CURVE), found["t=0"]]
            lines.append((f"`{model}`", patch, *(percent(point["certified"]) for point in points)))
    return lines


def alert_lines(folder: Path) -> Lines:
    """Thresholds on the cards, and the alerts that they and t = 0 mean on the test images."""
    lines: Lines = [
        (
            "model",
            "patch",
            "alerts at t = 0 %",
            *(f"t for {rate}" for rate in RATES),
            *(f"alerts at {rate}, %" for rate in RATES),
        )
    ]
    for model, result in results(folder, whole=True):
        for patch, found in measured_of(result, PATCHES):
            units = (f"{found[rate]['card']:,}" for rate in RATES)
            rates = (percent(found[rate]["alerted"]) for rate in RATES)
            lines.append((f"`{model}`", patch, percent(found["t=0"]["alerted"]), *units, *rates))
    return lines


def attack_lines(folder: Path) -> Lines:
    """What came of attacks on detectable images, and on others, from `python -m benchmarks.alerts`."""
    heads = ("detectable", "attacks", "succeeded", "neither", "of these broken")
    lines: Lines = [("model", "threat", "rule", *heads)]
    for path in sorted(BENCHMARKS.glob("alerts-*.json")):
        for case in json.loads(path.read_text(encoding="utf-8"))["cases"]:
            tried, control = case["detectable"], case["control"]
            numbers = (tried["images"], tried["runs"], len(tried["fooled"]))
            others = (f"{control['images']}", f"{len(control['fooled'])}") if control else ("", "")
            model = path.stem.removeprefix("alerts-")
            told = (f"`{model}`", f"`{case['patch']}`", f"`{case['rule']}`")
            lines.append((*told, *(f"{number:,}" for number in numbers), *others))
    return lines


TABLES = {
    "accuracies": accuracy_lines,
    "two": two_lines,
    "curve": curve_lines,
    "alerts": alert_lines,
    "attacks": attack_lines,
}


def page(out: Out = FOLDER) -> None:
    """Fill the tables of docs/detection.md."""
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        text = put_table(text, name, make(out))
    write_atomically(PAGE, text.encode())


def cards(out: Out = FOLDER) -> None:
    """Put the thresholds of all test images onto the cards of the shipped models."""
    for model, result in results(out, whole=True):
        for patch, found in result["patches"].items():
            for rate in RATES:
                chosen = {"detect": found[rate]["card"], "two-mask": found.get("two-mask", {}).get(rate)}
                for rule, above in chosen.items():
                    if above is not None:
                        card = Threshold(patch, rule, rate, above, "test", result["images"])
                        store_threshold(model_folder(model), card)
