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
from bagcert.report.tables import percent
from bagcert.rows.thresholds import Threshold, store_threshold
from bagcert.stored_models import model_folder, shipped_models
from studies.common.results import RESULTS, ROOT, provenance, write_results
from studies.common.subject import Subject
from studies.common.tables import Lines, put_table
from studies.detection.measure import CURVE, PATCHES, RATES, RECOVERED, THREATS, TWO
from studies.detection.measure import measure as measured

FOLDER = RESULTS / "detection"
PAGE = ROOT / "docs" / "detection.md"
Out = Annotated[Path, typer.Option(help="the folder of results")]


def measure(
    model: Annotated[str, typer.Argument(help="a shipped model or a run folder")],
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=2)] = 10_000,
    scores: Annotated[Path | None, typer.Option(help="folder of scores that `bagcert certify --scores` made")] = None,
    recovered: Annotated[int, typer.Option(help="images for recovery from two patches", min=1)] = RECOVERED,
    out: Out = FOLDER,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Recovery and detection of one model, from one pass over the test images."""
    subject = Subject.find(model, model, data_dir)
    defense, count = subject.defense, min(images, len(subject.source))
    found = measured(defense, subject.source, count, scores, recovered)
    options = [model, "--images", count, "--recovered", recovered]
    head = provenance("studies detection measure", options, defense.device)
    facts = {"arithmetic": subject.header["arithmetic"], "weights_sha256": subject.header["weights_sha256"]}
    unit = {"unit": defense.scorer.step.unit}
    write_results(out / f"{Path(model).name}.json", {**head, **facts, **unit, "images": count}, {"patches": found})


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """The stored results by model, in the order of the shipped models."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    return {model: found[model] for model in shipped_models() if model in found}


def measured_of(result: dict[str, Any], threats: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a result says of each of these threats that it has."""
    return ((patch, result["patches"][patch]) for patch in threats if patch in result["patches"])


def accuracy_lines(folder: Path) -> Lines:
    """Clean / certified accuracy, for recovery and for detection."""
    lines: Lines = [
        ("model", "patch", "recovery: two-mask", "detection, t = 0", *(f"{rate} false alerts" for rate in RATES))
    ]
    for model, result in results(folder).items():
        for patch, found in measured_of(result, PATCHES):
            lines.append((f"`{model}`", patch, *(pair(found[key]) for key in ("recovery", "t=0", *RATES))))
    return lines


def two_lines(folder: Path) -> Lines:
    """The same against two patches at once, with the alerts."""
    heads = ("detection, t = 0", *(f"{rate} false alerts" for rate in RATES))
    lines: Lines = [("model", "threat", "recovery: two-mask, first images", *heads, "alerts at t = 0 %")]
    for model, result in results(folder).items():
        for patch, found in measured_of(result, TWO):
            told = f"{pair(found['recovery'])} of {found['recovery']['images']:,}"
            shares = (pair(found[key]) for key in ("t=0", *RATES))
            lines.append((f"`{model}`", f"`{patch}`", told, *shares, percent(found["t=0"]["alerted"])))
    return lines


def pair(shares: dict[str, float]) -> str:
    return f"{percent(shares['clean'])} / {percent(shares['certified'])}"


def curve_lines(folder: Path) -> Lines:
    """Certified detection against the wanted rate of false alerts."""
    lines: Lines = [("model", "patch", *CURVE, "t = 0")]
    for model, result in results(folder).items():
        for patch, found in measured_of(result, THREATS):
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
    for model, result in results(folder).items():
        for patch, found in measured_of(result, THREATS):
            units = (f"{found[rate]['card']:,}" for rate in RATES)
            rates = (percent(found[rate]["alerted"]) for rate in RATES)
            lines.append((f"`{model}`", patch, percent(found["t=0"]["alerted"]), *units, *rates))
    return lines


TABLES = {"accuracies": accuracy_lines, "two": two_lines, "curve": curve_lines, "alerts": alert_lines}


def page(out: Out = FOLDER) -> None:
    """Fill the tables of docs/detection.md."""
    text = PAGE.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        text = put_table(text, name, make(out))
    write_atomically(PAGE, text.encode())


def cards(out: Out = FOLDER) -> None:
    """Put the thresholds onto the cards of the shipped models."""
    for model, result in results(out).items():
        for patch, found in result["patches"].items():
            for rate in RATES:
                chosen = {"detect": found[rate]["card"], "two-mask": found.get("two-mask", {}).get(rate)}
                for rule, above in chosen.items():
                    if above is not None:
                        card = Threshold(patch, rule, rate, above, "test", result["images"])
                        store_threshold(model_folder(model), card)
