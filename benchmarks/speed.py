"""Fill docs/speed.md and draw its figures from the stored results of growth, kernels, latency, roofline, trade.

    python -m benchmarks.speed

Tables have rows for every kind of device that was measured; figures show the GPU if there is one.
"""

import json
from typing import Any

from bagcert.files import read_json, write_atomically
from bagcert.report.drawing import Picture
from benchmarks.growth.figure import draw_growth
from benchmarks.growth.stated import AXES, STATED
from benchmarks.trade.figure import draw_trade
from studies.common.commands import call
from studies.common.results import BENCHMARKS, ROOT
from studies.common.tables import Lines, put_table

PAGE, FIGURES = ROOT / "docs" / "speed.md", ROOT / "docs" / "figures"
Stored = list[dict[str, Any]]  # of one benchmark, on each kind of device; the GPU first


def stored(name: str) -> Stored:
    paths = (BENCHMARKS / f"{name}-{kind}.json" for kind in ("cuda", "cpu"))
    return [read_json(path) for path in paths if path.is_file()]


def where(found: dict[str, Any]) -> str:
    return f"{found['device']}, one thread" if found["device"].startswith("CPU") else str(found["device"])


def trade_lines(results: Stored) -> Lines:
    lines: Lines = [("defense", "rule", "passes per image", "certified %", "images per second", "device")]
    for found in results:
        for name, row in sorted(found["defenses"].items(), key=lambda each: -each[1]["certified"]):
            speed = f"{row['of_base']:.3g} x `{found['base']}`"
            if "images_per_second" in row:
                speed = f"{row['images_per_second']:,.1f} ({speed})"
            few = "" if row["images_certified"] == 10_000 else f" ({row['images_certified']:,} images)"
            proven = f"{100 * row['certified']:.2f}{few}"
            name = f"`{name}` (ours)" if row["ours"] else f"`{name}`"
            lines.append((name, row["rule"], f"{row['passes']:,}", proven, speed, where(found)))
    return lines


def latency_lines(results: Stored) -> Lines:
    """Compared with the program exact in the same run, and by the clock where that was kept."""
    lines: Lines = [("model", "program", "sooner than by `exact`", "p50", "p99", "device")]
    for found in results:
        for row in found["models"]:
            usual = f"{row['p50_ms']:.3g} ms" if "p50_ms" in row else "–"
            cells = (f"{row['sooner_than_exact']:.3g}x", usual, f"{row['p99_of_p50']:.3g} x p50")
            lines.append((f"`{row['model']}`", row["program"], *cells, where(found)))
    return lines


def roofline_lines(results: Stored) -> Lines:
    heads = ("network", "GFLOP per image: 3x3 / 1x1", "MB per image", "share of the limit")
    rule = ("rule", "million operations per image", "MB per image", "share of the limit", "time of the network's")
    lines: Lines = [(*heads, *rule, "device")]
    for found in results:
        for row in found["networks"]:
            flop = " / ".join(f"{row['kinds'].get(kind, {}).get('gflop_per_image', 0):.2f}" for kind in ("3x3", "1x1"))
            cells = (f"`{row['network']}`", flop, f"{row['network_mb_per_image']:.1f}", percent(row, "network"))
            sums = (row["rule"], f"{row['rule_mega_operations_per_image']:.2f}", f"{row['rule_mb_per_image']:.3f}")
            ratio = f"{100 * row['rule_of_network']:.2f} %"
            lines.append((*cells, *sums, percent(row, "rule"), ratio, f"{where(found)}, {found['precision']}"))
    return lines


def percent(row: dict[str, Any], part: str) -> str:
    return f"{100 * row[f'{part}_share_of_limit']:.1f} %"


def kernel_lines(results: Stored) -> Lines:
    """Accuracies of each form of a network, and its time if it was measured."""
    lines: Lines = [("network", "form", "images", "clean %", "certified %", "seconds: network, rule", "device")]
    for found in results:
        for row in found["networks"]:
            shares = (f"{100 * row[key]:.2f}" for key in ("clean", "certified"))
            known = f"{row['network_seconds']:.3g}, {row['rule_seconds']:.3g}" if "network_seconds" in row else "–"
            lines.append((f"`{row['network']}`", row["form"], f"{found['images']:,}", *shares, known, where(found)))
    return lines


def stated_lines() -> Lines:
    lines: Lines = [("part", "time", "memory", "why")]
    return lines + [(name, each.time[0], each.memory[0], each.why) for name, each in STATED.items()]


def growth_lines(results: Stored) -> Lines:
    """Exponents of time and memory: measured, and what the stated formula has over the same sizes."""
    lines: Lines = [("part", "cost", *AXES, "device")]
    for found in results:
        for name, by_axis in found["curves"].items():
            for what in ("time", "memory"):
                cells = (fit_cell(by_axis[axis], what) if axis in by_axis else "–" for axis in AXES)
                lines.append((name, what, *cells, where(found)))
    return lines


def fit_cell(curve: dict[str, Any], what: str) -> str:
    if what not in curve["fits"]:
        return "too few sizes"
    fit, sizes = curve["fits"][what], curve["sizes"]
    beyond = fit["exponent"] - fit["uncertainty"] > fit["stated"]  # whatever caches explain
    mark = "**above** " if fit["exceeds"] else "† " if beyond else ""
    upto = f" to {sizes[-1]:,}" if what == "time" else ""
    return f"{mark}{fit['exponent']:.2f} ± {fit['uncertainty']:.2f} ({fit['stated']:.2f}){upto}"


def command_lines(results: dict[str, Stored]) -> Lines:
    lines: Lines = [("what", "command", "seed", "device", "torch", "results")]
    for name, each in results.items():
        for found in each:
            kind = "cpu" if found["device"].startswith("CPU") else "cuda"
            path = f"`benchmarks/results/{name}-{kind}.json`"
            versions = found["versions"]["torch"]
            lines.append((name, f"`{found['command']}`", str(found["seed"]), where(found), versions, path))
    return lines


def filled(text: str) -> str:
    """The page with all its tables up to date."""
    results = {name: stored(name) for name in ("trade", "latency", "roofline", "kernels", "growth")}
    for name, lines in (
        ("trade", trade_lines(results["trade"])),
        ("latency", latency_lines(results["latency"])),
        ("roofline", roofline_lines(results["roofline"])),
        ("kernels", kernel_lines(results["kernels"])),
        ("stated", stated_lines()),
        ("growth", growth_lines(results["growth"])),
        ("commands", command_lines(results)),
    ):
        text = put_table(text, name, lines)
    return text


def pictures() -> dict[str, tuple[Picture, str]]:
    """The figures, each with the numbers that it shows: another version of matplotlib draws other bytes."""
    trade, growth = stored("trade")[0], stored("growth")[0]
    drawn = {"trade": (draw_trade(trade), trade["defenses"]), "growth": (draw_growth(growth), growth["curves"])}
    return {name: (each, f"<!-- {json.dumps(numbers)} -->\n") for name, (each, numbers) in drawn.items()}


def main() -> None:
    """Bring docs/speed.md and its figures up to date."""
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8")).encode())
    for name, (drawn, numbers) in pictures().items():
        write_atomically(FIGURES / f"{name}.svg", (drawn.svg + numbers).encode())
        write_atomically(FIGURES / f"{name}.png", drawn.png)  # to look at; not stored
    print(f"wrote {PAGE.relative_to(ROOT)} and its figures")


if __name__ == "__main__":
    call(main)
