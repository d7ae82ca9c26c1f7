"""The zoo: docs/models.md, its figure, and what `bagcert models` says, from cards and stored measurements.

    python -m studies zoo measure   (milliseconds per image of every shipped model on this device; a minute on a CPU)
    python -m studies zoo page      (docs/models.md, docs/figures/zoo.svg, src/bagcert/models/measured.json)

Times are those of network and rule in float32, as certificates need it: on a CPU the processor time of one thread, on a
GPU the time by the clock in batches of 500. Detection comes from `python -m studies detection measure`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bagcert.defense import Defense, load
from bagcert.files import read_json, write_atomically, write_json
from bagcert.program import usual_device
from bagcert.rows.prover import one_thread
from bagcert.stored_models import card, shipped_models
from bagcert.zoo import (
    COST_HEADS,
    MEASURED,
    PATCHES,
    PROOF_HEADS,
    RECOVERY,
    Entry,
    Speed,
    cost_cells,
    count_parameters,
    percent,
    proof_cells,
    share,
    zoo,
)
from studies.common.results import BENCHMARKS, RESULTS, ROOT, provenance, write_results
from studies.common.tables import Lines, put_table
from studies.common.timing import measured
from studies.detection.command import FOLDER as DETECTION
from studies.zoo.figure import draw_zoo, drawn_numbers

FOLDER = RESULTS / "zoo"
PAGE, FIGURE = ROOT / "docs" / "models.md", ROOT / "docs" / "figures" / "zoo.svg"
MODELS = ROOT / "src" / "bagcert" / "models"
PATCH = "5x5"
TEST_IMAGES = 10_000
IMAGES, BATCH = {"cpu": 16, "cuda": 2000}, {"cpu": 16, "cuda": 500}


def measure(
    repeats: Annotated[int, typer.Option(help="of which the shortest counts", min=1)] = 2,
    out: Annotated[Path, typer.Option(help="the folder of results")] = FOLDER,
) -> None:
    """Time every shipped model on this device, with random images: pixels change no time."""
    device = usual_device()
    kind, found = device.type, {}
    with one_thread():
        head = provenance("studies zoo measure", ["--repeats", repeats], device)
        for model in shipped_models():
            shipped = load(model, device)
            rule = RECOVERY if not shipped.scorer.views else shipped.rule.name
            defense = Defense.build(shipped.scorer, rule, PATCH, shipped.classes, BATCH[kind])
            shape = (IMAGES[kind], shipped.scorer.channels or 3, *shipped.threat.image_size)
            pixels = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(device)
            row = measured(model, defense, pixels, repeats)
            per_image = 1000 * (row["network_seconds"] + row["rule_seconds"]) / len(pixels)
            found[model] = {"weights_sha256": card(model)["weights_sha256"], "ms_per_image": round(per_image, 4)}
            print(model, found[model]["ms_per_image"], flush=True)
    facts = {"precision": "float32", "images": IMAGES[kind], "batch": BATCH[kind], "patch": PATCH}
    write_results(out / f"{kind}.json", {**head, **facts}, {"models": found})


def speeds() -> dict[str, dict[str, Speed]]:
    """By kind of device and model, as far as they were measured with the weights that are shipped."""
    found: dict[str, dict[str, Speed]] = {"cpu": {}, "gpu": {}}
    for kind, name in (("cpu", "cpu"), ("gpu", "cuda")):
        path = ROOT / FOLDER / f"{name}.json"
        stored = read_json(path) if path.is_file() else {"models": {}}
        for model, row in stored["models"].items():
            if row["weights_sha256"] == card(model)["weights_sha256"]:
                device = f"{stored['device']}, {stored['precision']}, batches of {stored['batch']}"
                device += ", processor time of one thread" if kind == "cpu" else ""
                found[kind][model] = Speed(row["ms_per_image"], device, stored["command"])
    if not found["gpu"]:  # the table of the reproduction has them in the precision of training
        stored = read_json(BENCHMARKS / "table1.json")
        device = f"{stored['device']}, {stored['precision']}, batches of 500"
        for row in stored["networks"]:
            name = row["network"]
            if name in shipped_models() and row["parameters"] == count_parameters(card(name)):  # the same network
                per_image = 1000 * (row["network_seconds"] + row["rule_seconds"]) / stored["images"]
                found["gpu"][name] = Speed(round(per_image, 4), device, stored["command"])
    return found


def detection(model: str) -> dict[str, dict[str, float]]:
    """Clean and certified accuracy of `detect` at threshold 0 by patch; empty unless measured on all test images."""
    path = ROOT / DETECTION / f"{model}.json"
    stored: dict[str, Any] = read_json(path) if path.is_file() else {}
    if (stored.get("weights_sha256"), stored.get("images")) != (card(model)["weights_sha256"], TEST_IMAGES):
        return {}
    return {
        patch: {key: row["t=0"][key] for key in ("clean", "certified")}
        for patch, row in stored["patches"].items()
        if patch in PATCHES
    }


def measurements() -> dict[str, Any]:
    """What `bagcert models` reads, by model."""
    times = speeds()
    return {
        model: {
            "weights_sha256": card(model)["weights_sha256"],
            **{kind: asdict(found[model]) for kind, found in times.items() if model in found},
            "detection": detection(model),
        }
        for model in shipped_models()
    }


def proof_lines(entries: list[Entry]) -> Lines:
    return [PROOF_HEADS, *((f"`{each.name}`", *proof_cells(each)[1:]) for each in entries)]


def cost_lines(entries: list[Entry]) -> Lines:
    """With the command that shows the card."""
    lines: Lines = [(*COST_HEADS, "card")]
    return lines + [(f"`{each.name}`", *cost_cells(each)[1:], f"`bagcert models {each.name}`") for each in entries]


def training_lines(entries: list[Entry]) -> Lines:
    lines: Lines = [("model", "parameters", "training minutes", "trained by")]
    for each in entries:
        others = each.card.get("beside", 0)
        beside = (
            "beside another run" if others == 1 else f"beside {others} other runs" if others else "alone on the GPU"
        )
        minutes = f"{each.minutes:.1f}, {beside}" if each.minutes is not None else "–"
        lines.append((f"`{each.name}`", f"{each.parameters / 1e6:.1f} M", minutes, f"`{each.card['command']}`"))
    return lines


def result_lines(entries: list[Entry]) -> Lines:
    """Of each model its own rule against every patch, and every rule against its own patch."""
    lines: Lines = [("model", "patch", "rule", "clean %", "certified %")]
    for each in entries:
        for row in each.card["test"]:
            if row["rule"] == each.card["rule"] or row["patch"] == each.patch:
                shares = (f"{100 * row[key]:.2f}" for key in ("clean", "certified"))
                lines.append((f"`{each.name}`", row["patch"], row["rule"], *shares))
    return lines


def detection_lines(entries: list[Entry]) -> Lines:
    """Recovery beside detection; an alert is an error in the clean accuracy of detection."""

    def both(shares: Any, patch: str) -> str:
        return " / ".join(percent(share(shares, patch, which)) for which in (0, 1))

    lines: Lines = [("model", "patch", "recovery: clean / certified %", "detection: clean / certified %")]
    return lines + [
        (each.name, patch, both(each.recovery, patch), both(each.detection, patch))
        for each in entries
        for patch in PATCHES
    ]


def speed_lines(entries: list[Entry]) -> Lines:
    lines: Lines = [("model", "ms per image", "device", "command")]
    for each in entries:
        for speed in (each.cpu, each.gpu):
            if speed is not None:
                lines.append((each.name, f"{speed.ms_per_image:.3f}", speed.device, f"`{speed.command}`"))
    return lines


def filled(text: str, entries: list[Entry]) -> str:
    """The page with all its tables up to date."""
    for name, lines in (
        ("proofs", proof_lines(entries)),
        ("costs", cost_lines(entries)),
        ("training", training_lines(entries)),
        ("results", result_lines(entries)),
        ("detection", detection_lines(entries)),
        ("speed", speed_lines(entries)),
    ):
        text = put_table(text, name, lines)
    return text


def page() -> None:
    """Bring docs/models.md, its figure and the measurements of `bagcert models` up to date."""
    write_json(MODELS / MEASURED, measurements())
    entries = zoo()
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), entries).encode())
    write_atomically(FIGURE, (draw_zoo(entries).svg + drawn_numbers(entries)).encode())
    print(f"wrote {PAGE.relative_to(ROOT)}, {FIGURE.relative_to(ROOT)} and {(MODELS / MEASURED).relative_to(ROOT)}")
