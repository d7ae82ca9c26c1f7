"""How many images per second each defense certifies, against its certified accuracy: ours and every rival, in one run.

    python -m benchmarks.trade                   (some minutes on one thread of a CPU)
    python -m benchmarks.trade --device cuda

Network and rule are timed on test images for 5x5 patches, each defense by its own rule. The weights of rivals are not
stored; they are random here. That changes no time: none of their rules searches, and all their passes are made, so
PatchCleanser's early exits, which depend on the weights, are not taken. Accuracies are those of the stored rows. The
same command goes on where it was stopped; to measure again, remove its results. On a CPU only ratios to one of our
models are kept.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.data import load_dataset
from bagcert.defense import Defense, load
from bagcert.errors import UsageError, unknown_name
from bagcert.files import read_json, write_json
from bagcert.program import find_device, usual_device
from bagcert.rows.prover import one_thread
from studies.common.results import BENCHMARKS, RESULTS, ROOT, provenance, write_results
from studies.common.timing import BATCH, times
from studies.rivals.catalog import DEFENSES
from studies.rivals.plan import DATA, MAIN_PATCH, SPLIT
from studies.rivals.results import Standing, standings

BASE = "cifar10-small"
IMAGES = {"cpu": BATCH["cpu"], "cuda": 10_000}
MANY, FEW = 100, {"cpu": 1, "cuda": 500}  # with more passes than that per image, fewer images are timed
LONG = 5.0  # seconds; a call this long needs no warm-up, shorter ones are repeated for about as long
CLASSES = tuple("0123456789")


def defense_of(standing: Standing, device: torch.device) -> Defense:
    """A shipped model, or a rival with random weights; by its own rule."""
    rule = standing.rules[0]
    if standing.ours:
        return load(standing.name, device).against(MAIN_PATCH, rule)
    return DEFENSES[standing.name].build((32, 32), MAIN_PATCH, CLASSES).to(device).against(MAIN_PATCH, rule)


def timed_row(standing: Standing, images: Tensor, repeats: int) -> dict[str, Any]:
    """Seconds per image of network and rule, by all passes."""
    device = images.device
    defense, kind = defense_of(standing, device), device.type
    passes = defense.scorer.passes
    count = FEW[kind] if passes > MANY else IMAGES[kind]
    defense = replace(defense, batch_size=min(BATCH[kind], count))
    pixels = images[:count]

    def work() -> None:
        defense.certify_integers(defense.scores(pixels), exact=False)

    (first,) = spent = times(work, device, 1)
    if first < LONG:
        spent = times(work, device, max(repeats, round(LONG / first)))
    shares = standing.at(standing.rules[0])
    assert shares is not None
    return {
        "ours": standing.ours,
        "rule": standing.rules[0],
        "passes": passes,
        "images_timed": count,
        "seconds_per_image": min(spent) / count,
        "clean": shares.clean,
        "certified": shares.certified,
        "images_certified": shares.images,
    }


def with_speeds(rows: dict[str, dict[str, Any]], absolute: bool) -> dict[str, dict[str, Any]]:
    """Add images per second, relative to our base; absolute numbers only if asked for."""
    base = rows[BASE]["seconds_per_image"]
    table = {}
    for name, row in rows.items():
        kept = {key: value for key, value in row.items() if key != "seconds_per_image"}
        per_second = {"images_per_second": round(1 / row["seconds_per_image"], 2)} if absolute else {}
        table[name] = {**kept, **per_second, "of_base": float(f"{base / row['seconds_per_image']:.4g}")}
    return table


def trade(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the GPU if there is one")] = None,
    chosen: Annotated[list[str] | None, typer.Option("--defense", metavar="NAME", help="such as ibp; else all")] = None,
    repeats: Annotated[int, typer.Option(help="at least, of which the shortest counts", min=1)] = 3,
    results: Annotated[Path, typer.Option(help="the folder of stored rows")] = ROOT / RESULTS,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the table, as JSON")] = None,
) -> None:
    """Time all defenses in one run."""
    place = find_device(device, usual_device())
    kind = place.type
    out = out or BENCHMARKS / f"trade-{kind}.json"
    found = {each.name: each for each in standings(results) if each.at(each.rules[0]) is not None}
    if BASE not in found:
        raise UsageError(f"There are no rows of {BASE}, which all others are compared with. Give another --results.")
    for name in chosen or []:
        if name not in found:
            raise unknown_name("defense", name, found)
    pixels = next(iter(load_dataset(DATA, data_dir).split(SPLIT).batches(IMAGES[kind], place))).images
    with one_thread(), torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda"):
        options = ["--device", kind, "--repeats", repeats]
        options += [word for name in chosen or [] for word in ("--defense", name)]
        head = provenance("benchmarks.trade", options, place)
        work = out.with_suffix(".partial.json")  # seconds, until all are there
        stored = read_json(work) if work.is_file() else {}
        rows = stored.get("rows", {}) if stored.get("head") == head else {}
        for name in dict.fromkeys([BASE, *(chosen or found)]):
            if name not in rows:
                rows[name] = timed_row(found[name], pixels, repeats)
                write_json(work, {"head": head, "rows": rows})
            print(name, f"{rows[BASE]['seconds_per_image'] / rows[name]['seconds_per_image']:.4g} x {BASE}", flush=True)
    facts = {"precision": "bfloat16" if kind == "cuda" else "float32", "patch": MAIN_PATCH, "base": BASE}
    write_results(out, head, {**facts, "defenses": with_speeds(rows, kind == "cuda")})
    work.unlink()
