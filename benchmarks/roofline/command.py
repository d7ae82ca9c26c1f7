"""How near network and rule come to the limit of the device, for the shipped models and the paper's network.

    python -m benchmarks.roofline                   (two minutes on one thread of a CPU)
    python -m benchmarks.roofline --device cuda     (in bfloat16; --dtype float32 is the arithmetic of proofs)

Two ceilings are measured: a large product of matrices in the same type, on a CPU also a large convolution, whichever
is faster; and a large copy. The least time of a layer is
that of its multiply-adds at the first, or of its input, weights and output at the second, whichever is longer; that of
a rule is the time to read its scores once. The share of the limit is this least time over the measured one. On a CPU
only shares and ratios are kept: a time on one CPU says little about another. A share above 1 is exit code 1.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.data import load_dataset
from bagcert.defense import Defense, load
from bagcert.errors import unknown_name
from bagcert.program import DTYPES, find_device, usual_device
from bagcert.rows.prover import one_thread
from bagcert.rules import read_scores
from bagcert.scorers.residual import ResidualConfig
from bagcert.stored_models import shipped_models
from benchmarks.roofline.ceilings import BYTES, SIDE, bytes_per_second, flops_per_second
from benchmarks.roofline.counting import by_kind, operations, steps_of
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.timing import BATCH, timed

PATCH, PAPER, RULE_IMAGES = "5x5", "paper, field 7", 256
IMAGES, DTYPE = {"cpu": 4, "cuda": 10_000}, {"cpu": "float32", "cuda": "bfloat16"}
WIDTH = ResidualConfig().block_widths[0]


def defenses(device: torch.device, width: int, size: int) -> Iterator[tuple[str, Defense]]:
    """The paper's network with random weights, whose rule costs the same whatever the votes are; then ours."""
    paper = ResidualConfig(width=width).build((32, 32), mean=(0.0,), std=(1.0,)).to(device).eval()
    yield PAPER, Defense.build(paper, "every-region", PATCH, tuple("0123456789"), size)
    for model in shipped_models():
        yield model, replace(load(model, device).against(PATCH), batch_size=size)


def share(
    name: str, defense: Defense, images: Tensor, ceilings: dict[str, float], item: int, repeats: int
) -> dict[str, Any]:
    """Counts of one batch, times of all images, and shares of the limit."""
    batch = images[: defense.batch_size]
    with steps_of(defense.scorer) as steps:
        scores = defense.scores(batch)
    count, passes = len(batch), -(-len(images) // defense.batch_size)
    rate, values = ceilings["flops_per_second"], ceilings["bytes_per_second"] / item
    seconds = timed(lambda: defense.scores(images), images.device, repeats)
    least = passes * sum(step.seconds(rate, values) for step in steps)
    kinds = {
        kind: {
            "gflop_per_image": round(sum(step.flops for step in chosen) / count / 1e9, 4),
            "mb_per_image": round(sum(step.values for step in chosen) * item / count / 1e6, 3),
        }
        for kind, chosen in by_kind(steps).items()
    }
    # Network and rule take batches of their own: with few images the rule would wait for Python.
    maps = scores.values.repeat(max(1, RULE_IMAGES // count), 1, 1, 1)
    many = read_scores(maps, scores.bounds)
    rule = timed(lambda: defense.certify_integers(many, exact=False), images.device, repeats)
    summed = operations(lambda: defense.certify_integers(many, exact=False))
    return {
        "network": name,
        "rule": defense.rule.name,
        "parameters": sum(parameter.numel() for parameter in defense.scorer.parameters()),
        "network_seconds": seconds,
        "rule_seconds": rule * len(images) / len(maps),
        "network_gflop_per_image": round(sum(step.flops for step in steps) / count / 1e9, 4),
        "network_mb_per_image": round(sum(step.values for step in steps) * item / count / 1e6, 3),
        "network_share_of_limit": round(least / seconds, 4),
        "kinds": kinds,
        "rule_mega_operations_per_image": round(summed / len(maps) / 1e6, 4),
        "rule_mb_per_image": round(maps[0].nbytes / 1e6, 4),
        "rule_share_of_limit": round(maps.nbytes / ceilings["bytes_per_second"] / rule, 5),
        "rule_of_network": round(rule / len(maps) / (seconds / len(images)), 5),
    }


def impossible(rows: list[dict[str, Any]]) -> list[str]:
    """In words, what is faster than its limit: then the ceiling is too low, or too much is counted."""
    return [
        f"{part} of {row['network']}: {row[f'{part}_share_of_limit']}"
        for row in rows
        for part in ("network", "rule")
        if row[f"{part}_share_of_limit"] > 1
    ]


def kept(row: dict[str, Any], absolute: bool) -> dict[str, Any]:
    return row if absolute else {key: value for key, value in row.items() if not key.endswith("_seconds")}


def roofline(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the GPU if there is one")] = None,
    images: Annotated[int | None, typer.Option(help="the first ones of the test set", min=1)] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16")] = None,
    width: Annotated[int, typer.Option(help="of the paper's network", min=1)] = WIDTH,
    side: Annotated[int | None, typer.Option(help="of the matrices whose product is the ceiling", min=1)] = None,
    repeats: Annotated[int, typer.Option(help="of which the shortest counts", min=1)] = 3,
    models: Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="all, if none is named")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the shares, as JSON")] = None,
) -> None:
    """Measure the share of the limit of network and rule."""
    place = find_device(device, usual_device())
    kind = place.type
    count, precision, matrix = images or IMAGES[kind], dtype or DTYPE[kind], side or SIDE[kind]
    if precision not in DTYPES:
        raise unknown_name("dtype", precision, DTYPES)
    number, rows = DTYPES[precision], []
    pixels = next(iter(load_dataset("cifar10", data_dir).split("test").batches(count, place))).images
    with one_thread(), torch.autocast(kind, dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        options = ["--device", kind, "--images", count, "--dtype", precision, "--repeats", repeats]
        options += ["--width", width] if width != WIDTH else []
        options += ["--side", side] if side else []
        options += [word for model in models or [] for word in ("--model", model)]
        head = provenance("benchmarks.roofline", options, place)
        rates = flops_per_second(place, number, matrix, repeats)
        ceilings = {"flops_per_second": max(rates.values())}
        ceilings |= {"bytes_per_second": bytes_per_second(place, BYTES[kind], repeats)}
        for name, defense in defenses(place, width, min(BATCH[kind], count)):  # no pass is filled up
            if models is None or name in models:
                row = share(name, defense, pixels, ceilings, number.itemsize, repeats)
                rows.append(kept(row, kind == "cuda"))
                print(name, "network", row["network_share_of_limit"], "rule", row["rule_share_of_limit"], flush=True)
    ceiling = max(rates, key=rates.__getitem__)
    balance = round(ceilings["flops_per_second"] / ceilings["bytes_per_second"], 2)
    found = {"precision": precision, "images": len(pixels), "patch": PATCH, "paper_width": width}
    found |= {"ceiling": ceiling, "flops_per_byte": balance}
    found |= {
        "matrices_of_ceiling": round(rates["matrices"] / rates[ceiling], 4),
        **({"ceilings": ceilings} if kind == "cuda" else {}),
    }
    write_results(out or BENCHMARKS / f"roofline-{kind}.json", head, {**found, "networks": rows})
    for words in impossible(rows):
        typer.echo(f"faster than its limit, so the ceiling is too low: {words}", err=True)
    if impossible(rows):
        raise typer.Exit(1)
