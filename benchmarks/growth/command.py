"""How cost grows: one curve of time and memory for each part and axis, its exponent, and whether that is as stated.

    python -m benchmarks.growth                   (a few minutes on one thread of a CPU)
    python -m benchmarks.growth --device cuda     (the whole range: 50,000 images, a 224x224 grid)

On a CPU a time is the processor time of one thread, and curves end once a call takes longer than `--longest`. Only
exponents and times relative to the first point are kept there: a time on one CPU says little about another. The same
command goes on where it was stopped; to measure again, remove its results. An exponent that surely is above the stated
one (`stated.STATED`) is exit code 1.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from bagcert.files import read_json
from bagcert.program import find_device, usual_device
from bagcert.rows.prover import one_thread
from benchmarks.growth.fitting import Fit, fitted
from benchmarks.growth.memory import peak_bytes
from benchmarks.growth.stated import AXES, STATED, Formula
from benchmarks.growth.subjects import Size, Subjects, counts
from studies.common.commands import choose
from studies.common.results import BENCHMARKS, provenance, write_results
from studies.common.timing import times

Curve = dict[str, Any]
BASE = {"cpu": Size(64, 10, 32, 5), "cuda": Size(256, 10, 32, 5)}
# What differs from the base while one axis grows: few images of many classes or on a large grid fill a device.
ELSEWHERE = {"cpu": {"classes": {"images": 16}, "grid": {"images": 4}}, "cuda": {"patch": {"grid": 224, "images": 16}}}
RANGES: dict[str, dict[str, tuple[int, ...]]] = {
    "cpu": {
        "images": (1, 4, 16, 64, 256, 1024, 4096),
        "classes": (10, 30, 100, 200, 400, 700, 1000),
        "grid": (32, 48, 64, 80, 112, 160, 224),
        "patch": (1, 2, 4, 6, 8, 11, 16),
    },
    "cuda": {
        "images": (1, 10, 100, 1000, 5000, 15_000, 50_000),
        "classes": (10, 30, 100, 200, 400, 700, 1000),
        "grid": (32, 48, 64, 80, 112, 160, 224),
        "patch": (1, 4, 8, 16, 32, 64, 112),
    },
}
LONGEST = {"cpu": 1.0, "cuda": 20.0}
WIDTH = {"cpu": 128, "cuda": 256}
SHORT = 0.02  # seconds; shorter calls are repeated, since a clock has a start and an end


def base_of(axis: str, kind: str) -> Size:
    from_base = asdict(BASE[kind]) | ELSEWHERE[kind].get(axis, {})
    return Size(**from_base)


def measured(subjects: Subjects, name: str, axis: str, repeats: int, longest: float) -> Curve:
    """Seconds of each repeat and the peak of memory, size by size."""
    device = subjects.device
    base, found = base_of(axis, device.type), Curve(sizes=[], seconds=[], bytes=[])
    for value in RANGES[device.type][axis]:
        work = subjects.work(name, base.at(axis, value))
        first = times(work, device, 2)[1]
        often = max(1, round(SHORT / max(first, 1e-6))) if first < SHORT else 1

        def several(work: Any = work, often: int = often) -> None:
            for _ in range(often):
                work()

        spent = [seconds / often for seconds in times(several, device, repeats)]
        found["sizes"].append(value)
        found["seconds"].append(spent)
        found["bytes"].append(peak_bytes(work, device))
        if min(spent) > longest:
            break
    return found


def verdict(name: str, axis: str, curve: Curve, base: Size) -> dict[str, Any]:
    """Fits of time and memory beside the exponents that the stated formulas have over the same sizes."""
    costs = {"time": curve["seconds"], "memory": [[max(1, each)] for each in curve["bytes"]]}
    told = {}
    for what, repeats in costs.items():
        fit = fitted(curve["sizes"], repeats)
        if fit is not None:
            stated = round(stated_exponent(STATED[name].of(what)[1], axis, curve["sizes"], base), 3)
            told[what] = {**rounded(fit), "stated": stated, "exceeds": fit.exceeds(stated)}
    return told


def stated_exponent(formula: Formula, axis: str, sizes: list[int], base: Size) -> float:
    """Of a formula that falls, 0: what is stated is that the cost does not grow."""
    fit = fitted(sizes, [[formula(counts(base.at(axis, size)))] for size in sizes])
    return max(0.0, fit.exponent) if fit is not None else 0.0


def rounded(fit: Fit) -> dict[str, float]:
    return {key: round(value, 3) for key, value in asdict(fit).items()}


def kept(curve: Curve, absolute: bool) -> Curve:
    """The least seconds, or on a CPU their ratios to the first; bytes as they are."""
    seconds = [min(each) for each in curve["seconds"]]
    times = {"seconds": [round(each, 6) for each in seconds]} if absolute else {}
    relative = [round(each / seconds[0], 4) for each in seconds]
    return {"sizes": curve["sizes"], **times, "of_first": relative, "peak_bytes": curve["bytes"]}


def above(curves: dict[str, dict[str, Curve]]) -> list[str]:
    """In words, each exponent that surely is above the stated one."""
    return [
        f"{what} of {name} by {axis}: {fit['exponent']} ± {fit['uncertainty']}, stated {fit['stated']:g}"
        for name, by_axis in curves.items()
        for axis, curve in by_axis.items()
        for what, fit in curve["fits"].items()
        if fit["exceeds"]
    ]


def growth(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; the GPU if there is one")] = None,
    parts: Annotated[list[str] | None, typer.Option("--part", metavar="NAME", help="such as two-mask")] = None,
    repeats: Annotated[int, typer.Option(help="of which the shortest counts", min=1)] = 3,
    longest: Annotated[float | None, typer.Option(help="seconds of a call that end a curve")] = None,
    width: Annotated[int | None, typer.Option(help="of the network", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="the curves, as JSON")] = None,
) -> None:
    """Measure how cost grows; an exponent above the stated one is exit code 1."""
    found, wanted = find_device(device, usual_device()), choose("part", parts, STATED)
    kind = found.type
    limit, wide = longest or LONGEST[kind], width or WIDTH[kind]
    out = out or BENCHMARKS / f"growth-{kind}.json"
    options = ["--device", kind, "--repeats", repeats, "--longest", f"{limit:g}", "--width", wide]
    subjects, base = Subjects(found, wide), {axis: asdict(base_of(axis, kind)) for axis in AXES}
    with one_thread():
        head = provenance("benchmarks.growth", options, found)
        stored = read_json(out) if out.is_file() else {}
        curves = stored["curves"] if {key: stored.get(key) for key in head} == head else {}
        for name in wanted:
            for axis in STATED[name].axes:
                if axis not in curves.get(name, {}):
                    curve = measured(subjects, name, axis, repeats, limit)
                    fits = verdict(name, axis, curve, base_of(axis, kind))
                    curves.setdefault(name, {})[axis] = {**kept(curve, kind == "cuda"), "fits": fits}
                    write_results(out, head, {"base": base, "curves": curves})
                print(name, axis, curves[name][axis]["sizes"][-1], *map(told, curves[name][axis]["fits"].items()))
    faster = above(curves)
    for words in faster:
        typer.echo(f"grows faster than stated: {words}", err=True)
    if faster:
        raise typer.Exit(1)


def told(fit: tuple[str, dict[str, Any]]) -> str:
    what, found = fit
    return f"{what}: {found['exponent']} ± {found['uncertainty']} (stated {found['stated']:g})"
