"""Time the networks of Table 1 by receptive field, and count their parameters.

    python -m benchmarks.table1             (all 10,000 test images, for a GPU)
    python -m benchmarks.table1 --images 4  (a first look on two cores: ratios only)
    python -m benchmarks.table1 --program fast              (into a file of its own)

The paper's networks have width 768 and two paths; their weights are random here, which changes no time. The shipped
models follow. Each pass is the network and its rule, as `Defense.certify` runs them: bfloat16 on a GPU, float32 on one
thread of a CPU, unless another program than `exact` is named. A time on one CPU says little about another, so only the
ratio to receptive field 7 is kept there.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bagcert.data import load_dataset
from bagcert.defense import Defense, load
from bagcert.errors import unknown_name
from bagcert.program import EXACT, find_program, usual_device
from bagcert.rows.prover import one_thread
from bagcert.scorers.residual import CIFAR_KERNELS, ResidualConfig, ResidualScorer
from bagcert.stored_models import shipped_models
from studies.common.commands import ProgramOption, call
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.timing import BATCH, measured

RESULTS = BENCHMARKS / "table1.json"
PATCH, PAPER_RULE, BASE = "5x5", "every-region", "paper, field 7"
PAPER = {f"paper, field {field}": kernels for field, kernels in CIFAR_KERNELS.items()}


def need_networks(names: list[str]) -> None:
    """Refuse a name that is not in the table."""
    known = [*PAPER, *shipped_models()]
    for name in names:
        if name not in known:
            raise unknown_name("network", name, known)


def defenses(device: torch.device, classes: tuple[str, ...]) -> Iterator[tuple[str, Defense]]:
    """One after the other: the paper's networks by receptive field, then the shipped models."""
    size = BATCH[device.type]
    for name, kernels in PAPER.items():
        scorer = ResidualScorer(ResidualConfig(kernels=kernels), (32, 32)).to(device).eval()
        yield name, Defense.build(scorer, PAPER_RULE, PATCH, classes, size)
    for model in shipped_models():
        shipped = load(model, device)
        yield model, Defense.build(shipped.scorer, shipped.rule.name, PATCH, classes, size)


def with_ratios(rows: list[dict[str, Any]], absolute: bool) -> list[dict[str, Any]]:
    """Add each network's time relative to the paper's with receptive field 7; keep seconds only if asked to."""

    def total(row: dict[str, Any]) -> float:
        return float(row["network_seconds"] + row["rule_seconds"])

    base = total(next(row for row in rows if row["network"] == BASE))
    table = []
    for row in rows:
        ratios = {
            "of_field_7": round(total(row) / base, 4),
            "rule_of_network": round(row["rule_seconds"] / row["network_seconds"], 5),
        }
        kept = row if absolute else {key: value for key, value in row.items() if not key.endswith("_seconds")}
        table.append({**kept, **ratios})
    return table


def main(
    images: Annotated[int, typer.Option(help="the first ones of the test set", min=1)] = 10_000,
    repeats: Annotated[int, typer.Option(help="of which the shortest counts", min=1)] = 3,
    program: ProgramOption = EXACT,
    network: Annotated[list[str] | None, typer.Option(help="as the table names them; all if none is given")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the table, as JSON; a file for each program if left out")] = None,
) -> None:
    """Time the networks of Table 1 and ours."""
    need_networks(network or [])
    device = usual_device()
    dataset = load_dataset("cifar10", data_dir)
    pixels = next(iter(dataset.split("test").batches(images, device))).images
    rows = []
    for name, defense in defenses(device, dataset.classes):
        if network and name not in (BASE, *network):
            continue
        named = defense if program == EXACT else defense.by(program)
        reduced = device.type == "cuda" and program == EXACT
        with one_thread(), torch.autocast(device.type, dtype=torch.bfloat16, enabled=reduced):
            rows.append(measured(name, named, pixels, repeats))
        print(json.dumps(rows[-1]), flush=True)
    usual = "bfloat16" if device.type == "cuda" else "float32"
    result = {
        "precision": usual if program == EXACT else str(find_program(program, device)),
        "images": len(pixels),
        "patch": PATCH,
        "networks": with_ratios(rows, absolute=device.type == "cuda"),
    }
    options = ["--images", images, "--repeats", repeats, *([] if program == EXACT else ["--program", program])]
    options += [word for name in network or [] for word in ("--network", name)]
    path = out or (RESULTS if program == EXACT else RESULTS.with_stem(f"{RESULTS.stem}-{program}"))
    write_results(path, provenance("benchmarks.table1", options, device), result)


if __name__ == "__main__":
    call(main)
