"""The zoo: docs/models.md, its figure, and what `bagcert models` says, from cards and stored measurements.

    python -m studies zoo measure   (milliseconds per image of every shipped model on this device; a minute on a CPU)
    python -m studies zoo page      (docs/models.md, docs/figures/zoo.svg, src/bagcert/models/measured.json)

Times are those of network and rule by each program: on a CPU the processor time of one thread, on a GPU the time by
the clock. Detection comes from `python -m studies detection measure`; accuracies of other programs than `exact` from
rows in studies/results/programs/, made by `bagcert certify MODEL --program NAME`.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.defense import Defense, load
from bagcert.files import read_json, write_atomically, write_json
from bagcert.program import EXACT, PROGRAMS, find_program, usual_device
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.prover import one_thread
from bagcert.stored_models import card, shipped_models
from bagcert.zoo import (
    COST_HEADS,
    DASH,
    MEASURED,
    PATCHES,
    PROGRAM_HEADS,
    PROOF_HEADS,
    RECOVERY,
    Entry,
    Speed,
    cost_cells,
    count_parameters,
    percent,
    program_cells,
    proof_cells,
    share,
    zoo,
)
from studies.common.results import BENCHMARKS, RESULTS, ROOT, provenance, write_results
from studies.common.tables import Lines, put_table
from studies.common.timing import measured
from studies.detection.command import FOLDER as DETECTION
from studies.zoo.figure import draw_zoo, drawn_numbers

FOLDER, BY_PROGRAM = RESULTS / "zoo", RESULTS / "programs"
PAGE, FIGURE = ROOT / "docs" / "models.md", ROOT / "docs" / "figures" / "zoo.svg"
MODELS = ROOT / "src" / "bagcert" / "models"
PATCH = "5x5"
TEST_IMAGES = 10_000
IMAGES, BATCH = {"cpu": 16, "cuda": 10_240}, {"cpu": 16, "cuda": 500}


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
            times = {name: per_image(program_of(defense, name), pixels, repeats) for name in PROGRAMS}
            found[model] = {"weights_sha256": card(model)["weights_sha256"], "ms_per_image": times}
            print(model, times, flush=True)
    programs = {name: find_program(name, device).describe() for name in PROGRAMS}
    arithmetic = {name: str(each["arithmetic"]) for name, each in programs.items()}
    facts = {"images": IMAGES[kind], "patch": PATCH, "programs": arithmetic}
    known = {key: value for each in programs.values() for key, value in each.items() if key == "instructions"}
    write_results(out / f"{kind}.json", {**head, **facts, **known}, {"models": found})


def program_of(defense: Defense, name: str) -> Defense:
    """The defense by that program; the program exact keeps its batches, which on a GPU are larger than usual here."""
    return defense if name == EXACT else defense.by(name)


def per_image(defense: Defense, pixels: Tensor, repeats: int) -> float:
    """Milliseconds of network and rule."""
    row = measured("", defense, pixels, repeats)
    return round(1000 * float(row["network_seconds"] + row["rule_seconds"]) / len(pixels), 4)


def speeds(program: str = EXACT) -> dict[str, dict[str, Speed]]:
    """By kind of device and model, as far as they were measured with the weights that are shipped."""
    found: dict[str, dict[str, Speed]] = {"cpu": {}, "gpu": {}}
    for kind, name in (("cpu", "cpu"), ("gpu", "cuda")):
        path = ROOT / FOLDER / f"{name}.json"
        stored = read_json(path) if path.is_file() else {"models": {}}
        for model, row in stored["models"].items():
            if row["weights_sha256"] == card(model)["weights_sha256"]:
                device = f"{stored['device']}; {stored['programs'][program]}"
                device += ", processor time of one thread" if kind == "cpu" else ""
                found[kind][model] = Speed(row["ms_per_image"][program], device, stored["command"])
    if not found["gpu"] and program == EXACT:  # the table of the reproduction has them in the precision of training
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


def recovery(model: str, program: str) -> dict[str, dict[str, float]]:
    """Clean and certified accuracy by patch, from stored rows of that program; empty unless of these weights."""
    path = BY_PROGRAM / f"{model}-{program}.jsonl.xz"
    if not path.exists():
        return {}
    rows = read_rows(path)
    if rows.header["weights_sha256"] != card(model)["weights_sha256"] or len(rows.labels) != TEST_IMAGES:
        return {}
    return {
        row["patch"]: {key: row[f"{key}_accuracy"] for key in ("clean", "certified")}
        for row in summary(rows)
        if row["rule"] == RECOVERY
    }


def by_program(model: str, program: str) -> dict[str, Any]:
    """Time on a CPU and accuracies of a program other than the exact one, which the card tells about."""
    times = speeds(program)["cpu"]
    return {
        **({"cpu": asdict(times[model])} if model in times else {}),
        "recovery": recovery(model, program),
    }


def measurements() -> dict[str, Any]:
    """What `bagcert models` reads, by model."""
    times = speeds()
    return {
        model: {
            "weights_sha256": card(model)["weights_sha256"],
            **{kind: asdict(found[model]) for kind, found in times.items() if model in found},
            "detection": detection(model),
            "programs": {name: by_program(model, name) for name in PROGRAMS if name != EXACT},
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


def program_lines(entries: list[Entry]) -> Lines:
    """Times and accuracies by program, and how much faster each is than the exact one in the same run."""
    lines: Lines = [(*PROGRAM_HEADS, "faster than exact", "rows")]
    for each in entries:
        usual = each.programs[EXACT].speed
        for row, (name, found) in zip(program_cells(each), each.programs.items(), strict=True):
            known = usual is not None and found.speed is not None
            times = f"{usual.ms_per_image / found.speed.ms_per_image:.2f}x" if known else DASH  # type: ignore[union-attr]
            stored = f"`{BY_PROGRAM}/{each.name}-{name}.jsonl.xz`" if found.recovery else DASH
            lines.append((f"`{each.name}`", *row[1:], times, "its card" if name == EXACT else stored))
    return lines


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
        ("programs", program_lines(entries)),
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
