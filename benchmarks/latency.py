"""How long one picture waits for its certificate, by each shipped model and program.

    python -m benchmarks.latency                    (ten minutes on one thread of a CPU)
    python -m benchmarks.latency --device cuda

Network and rule, for a single test image, called again and again. A time on one CPU says little about another, so only
two ratios are kept there: how much sooner the answer is there than by the program exact in the same run, and how much
longer than usual (p50) the slowest calls take (p99).
"""

from pathlib import Path
from statistics import quantiles
from typing import Annotated, Any

import typer

from bagcert.data import load_dataset
from bagcert.defense import Defense, load
from bagcert.program import EXACT, PROGRAMS, find_device, find_program, usual_device
from bagcert.rows.prover import one_thread
from bagcert.stored_models import shipped_models
from bagcert.tensors import Images
from studies.common.commands import call, choose
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.timing import times

PATCH = "5x5"
CALLS, WARM_UP = {"cpu": 100, "cuda": 1000}, 3


def waiting(defense: Defense, image: Images, calls: int) -> dict[str, float]:
    """Milliseconds until the certificate is there: the usual, and what one call in a hundred exceeds."""
    spent = times(lambda: defense.certify(image, exact=False), image.device, WARM_UP + calls)[WARM_UP:]
    cuts = quantiles(spent, n=100, method="inclusive")
    return {"p50_ms": round(1000 * cuts[49], 4), "p99_ms": round(1000 * cuts[98], 4)}


def with_ratios(rows: list[dict[str, Any]], absolute: bool) -> list[dict[str, Any]]:
    """Add what a time on any machine says; keep milliseconds only if asked to."""
    exact = {row["model"]: row["p50_ms"] for row in rows if row["program"] == EXACT}
    table = []
    for row in rows:
        ratios = {
            "sooner_than_exact": float(f"{exact[row['model']] / row['p50_ms']:.3g}"),
            "p99_of_p50": float(f"{row['p99_ms'] / row['p50_ms']:.3g}"),
        }
        kept = row if absolute else {key: value for key, value in row.items() if not key.endswith("_ms")}
        table.append({**kept, **ratios})
    return table


def latency(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the GPU if there is one")] = None,
    calls: Annotated[int | None, typer.Option(help="for each model and program", min=2)] = None,
    models: Annotated[list[str] | None, typer.Option("--model", metavar="NAME", help="all, if none is named")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    out: Annotated[Path | None, typer.Option(help="the table, as JSON")] = None,
) -> None:
    """Time the certificate of a single picture."""
    place = find_device(device, usual_device())
    count, rows = calls or CALLS[place.type], []
    image = next(iter(load_dataset("cifar10", data_dir).split("test").batches(1, place))).images
    with one_thread():
        options = ["--device", place.type, "--calls", count]
        options += [word for name in models or [] for word in ("--model", name)]
        head = provenance("benchmarks.latency", options, place)
        programs = {name: str(find_program(name, place)) for name in PROGRAMS}
        facts = {"patch": PATCH, "calls": count, "programs": programs}
        for model in choose("model", models, shipped_models()):
            for program in PROGRAMS:
                defense = load(model, place, program=program).against(PATCH)
                about = {"model": model, "program": program, "rule": defense.rule.name}
                rows.append(about | waiting(defense, image, count))
                print(*about.values(), {key: rows[-1][key] for key in ("p50_ms", "p99_ms")}, flush=True)
                table = with_ratios(rows, absolute=place.type == "cuda")
                path = out or BENCHMARKS / f"latency-{place.type}.json"
                write_results(path, head, {**facts, "models": table})  # so that nothing is lost


if __name__ == "__main__":
    call(latency)
