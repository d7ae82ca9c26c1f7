"""Fill the tables of docs/reproduction.md from cards, rows and benchmark results.

    python -m studies reproduction

A table stands between `<!-- NAME -->` and `<!-- /NAME -->`. A cell that has not been measured says so.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from bagcert.files import read_json, write_atomically
from bagcert.report.tables import attack_table, percent
from bagcert.rows.format import Evaluation
from bagcert.scorers.residual import CIFAR_KERNELS
from bagcert.stored_models import card, shipped_models
from studies.common.results import BENCHMARKS, RESULTS, ROOT
from studies.common.tables import Lines, put_table
from studies.figures.plan import (
    BOUND_PATCHES,
    MAIN_PATCH,
    MARGINS,
    RECTANGLES,
    SCORE_RUNS,
    SQUARES,
    SweepModel,
)
from studies.figures.stored_results import Stock

PAGE = ROOT / "docs" / "reproduction.md"
OPEN = "not measured yet"
PAPER_SECONDS = {5: 39.0, 7: 40.6, 9: 43.2, 11: 45.9, 13: 48.5}  # Table 1, V100, 10,000 images
PAPER_MILLIONS = {5: 28, 7: 38, 9: 47, 11: 57, 13: 66}


def headline(stock: Stock) -> Lines:
    """The paper's best network beside ours, 5x5."""
    lines: Lines = [("network and rule", "paper: clean / certified %", "ours: clean / certified %", "command")]
    for words, paper, model, rule in (
        ("margin loss, receptive field 7, Condition 3.3", "86 / about 57", "cifar10-votes", "largest-region"),
        ("margin loss, receptive field 7, Condition 3.2", "86 / 60", "cifar10-votes", "every-region"),
        ("the same votes, two masks", "–", "cifar10-votes", "two-mask"),
        ("trained for two masks", "–", "cifar10-small", "two-mask"),
        (
            "two networks of fields 7 and 5, together as large, taught by score maps",
            "–",
            "cifar10-distilled",
            "two-mask",
        ),
        ("the same two fields, wider", "–", "cifar10", "two-mask"),
    ):
        shares = stock.shipped.found[model].accuracies(Evaluation(MAIN_PATCH, rule))
        command = f"`bagcert certify {model} --patch {MAIN_PATCH} --rule {rule}`"
        lines.append((words, paper, f"{percent(shares.clean)} / {percent(shares.certified)}", command))
    return lines


def by_patch(patches: tuple[str, ...]) -> Callable[[Stock], Lines]:
    """Certified accuracy of the shipped models against patches."""

    def table(stock: Stock) -> Lines:
        kinds = [(model, rule) for model in stock.shipped.found for rule in ("every-region", "two-mask")]
        kinds = [kind for kind in kinds if Evaluation(MAIN_PATCH, kind[1]) in stock.shipped.found[kind[0]].results]
        lines: Lines = [("patch", *(f"`{model}`, {rule}" for model, rule in kinds))]
        for patch in patches:
            cells = []
            for model, rule in kinds:
                rows, entry = stock.shipped.found[model], Evaluation(patch, rule)
                cells.append(percent(rows.accuracies(entry).certified) if entry in rows.results else OPEN)
            lines.append((patch, *cells))
        return lines

    return table


def bounds(stock: Stock) -> Lines:
    """Certified ≤ attacked ≤ clean, by the model's own rule."""
    found = stock.bounds.found
    lines: Lines = [attack_table([]).heads]
    for key in [(model, patch) for model in shipped_models() for patch in BOUND_PATCHES]:
        cells = attack_table([(key[0], found[key])]).rows[0] if key in found else (*key, card(key[0])["rule"], OPEN)
        lines.append((*cells, *[""] * (len(lines[0]) - len(cells))))
    return lines


def sweep(stock: Stock) -> Lines:
    """Clean and certified accuracy of the sweep by Condition 3.2."""

    def cell(model: SweepModel) -> str:
        shares = stock.sweep.found[model].accuracies(Evaluation(MAIN_PATCH, "every-region"))
        return f"{percent(shares.clean)} / {percent(shares.certified)}"

    return grid({model: cell(model) for model in stock.sweep.found})


def attacked(stock: Stock) -> Lines:
    """Both bounds of the accuracy under attack over the sweep."""
    found = stock.sweep_attacks.found
    return grid(
        {
            model: f"{percent(rows.certified_accuracy)} ≤ {percent(rows.attacked_accuracy)}"
            for model, rows in found.items()
        }
    )


def grid(cells: dict[SweepModel, str]) -> Lines:
    """One line for each receptive field, one column for each margin."""
    lines: Lines = [("receptive field", *(f"M = {margin}" for margin in MARGINS))]
    for field in CIFAR_KERNELS:
        lines.append((str(field), *(cells.get(SweepModel(field, margin), OPEN) for margin in MARGINS)))
    return lines


def score_functions(stock: Stock) -> Lines:
    """The final accuracies of each run."""
    lines: Lines = [("score function", "paper", "ours: clean / certified % after training, each seed")]
    paper = {
        "heaviside": "stable in all five runs, best",
        "sigmoid": "one run nearly as good, four collapse",
        "softmax": "consistent, lower",
    }
    for step, words in paper.items():
        curves = [stock.curves.found.get(run) for run in SCORE_RUNS if run.step == step]
        ends = [
            "collapsed" if curve.collapsed else f"{percent(curve.clean[-1])} / {percent(curve.certified[-1])}"
            for curve in curves
            if curve is not None
        ]
        lines.append((step, words, ", ".join(ends) or OPEN))
    return lines


def times(stock: Stock) -> Lines:
    """Table 1: the paper's times and ours, always as ratios, and as seconds if a GPU measured them."""
    result = read_result("table1.json")
    ours = f"ours ({result['device']}, {result['images']:,} images)"
    heads = ("network", "parameters, paper", "ours", "seconds, paper (V100)", "ours", "of field 7, paper", ours)
    lines: Lines = [heads]
    for row in result["networks"]:
        field, name = row["receptive_field"], row["network"]
        own = not name.startswith("paper")
        spent = row.get("network_seconds")
        seconds = OPEN if spent is None else f"{(spent + row['rule_seconds']) * 10_000 / result['images']:.2f}"
        paper = ("–", "–") if own else (f"{PAPER_SECONDS[field]}", f"{PAPER_SECONDS[field] / PAPER_SECONDS[7]:.2f}")
        millions = "–" if own else f"{PAPER_MILLIONS[field]} M"
        size = f"{row['parameters'] / 1e6:.1f} M"
        words = f"`{name}`, {row['rule']}" if own else f"receptive field {field}"
        lines.append((words, millions, size, paper[0], seconds, paper[1], f"{row['of_field_7']:.2f}"))
    return lines


def fast_times(stock: Stock) -> Lines:
    """The networks that were timed by the program `fast` as well, network and rule."""
    fast, usual = read_result("table1-fast.json"), read_result("table1.json")
    seconds = {row["network"]: row["network_seconds"] + row["rule_seconds"] for row in usual["networks"]}
    lines: Lines = [("network", "eager, seconds", "`fast`, seconds", "times as fast", "images per second by `fast`")]
    for row in fast["networks"]:
        name, spent = row["network"], row["network_seconds"] + row["rule_seconds"]
        known = seconds[name] * fast["images"] / usual["images"]
        cells = (f"{known:.2f}", f"{spent:.2f}", f"{known / spent:.2f}", f"{fast['images'] / spent:,.0f}")
        lines.append((name if name.startswith("paper") else f"`{name}`", *cells))
    return lines


def million(stock: Stock) -> Lines:
    """Attacks on proven answers by `--million`, all patches together; the control attacks unproven answers."""
    result, heads = read_result("million.json"), ("model", "rule", "descents", "other patches", "verdicts", "broken")
    lines: Lines = [(*heads, "control: changed", "of")]
    found: dict[tuple[str, str], Counter[str]] = {}
    for case in result["cases"]:
        sums = found.setdefault((case["model"], case["rule"].partition(":")[0]), Counter())
        sums.update({key: case[key] for key in ("descents", "cheap", "verdicts")})
        sums.update(changed=sum(case["changed"].values()), tried=sum(case["tried"].values()))
    for (model, rule), sums in sorted(found.items()):
        broken = sum(unit.split("/")[1] == model and by.partition(":")[0] == rule for unit, by, *_ in result["broken"])
        counts = (sums["descents"], sums["cheap"], sums["verdicts"], broken, sums["changed"], sums["tried"])
        same = result["weights_sha256"][model] == card(model)["weights_sha256"]
        lines.append(
            (f"`{model}`" + ", earlier weights" * (not same), f"`{rule}`", *(f"{count:,}" for count in counts))
        )
    kinds = (result["descents"]["pictures"], result["cheap"]["pictures"], result["verdicts"], len(result["broken"]))
    lines.append(("together", "", *(f"{count:,}" for count in kinds), "", ""))
    return lines


def soundness(stock: Stock) -> Lines:
    """Attacks on certified images: no class may change."""
    lines: Lines = [("command", "weights", "patches", "rules", "attack runs", "classes changed", "device")]
    shipped = {card(model)["weights_sha256"] for model in shipped_models()}
    for path in sorted(BENCHMARKS.glob("soundness*.json")):
        result = read_result(path.name)
        patches = ", ".join(dict.fromkeys(case["patch"] for case in result["cases"]))
        rules = ", ".join(dict.fromkeys(case["rule"] for case in result["cases"]))
        counts = f"{result['runs']:,}", str(result["flips"])
        weights = "shipped" if result["weights_sha256"] in shipped else "an earlier model's"
        lines.append((f"`{result['command']}`", weights, patches, rules, *counts, result["device"]))
    return lines


def read_result(name: str) -> dict[str, Any]:
    return read_json(BENCHMARKS / name)


TABLES: dict[str, Callable[[Stock], Lines]] = {
    "headline": headline,
    "sizes": by_patch(SQUARES),
    "aspects": by_patch(RECTANGLES),
    "sweep": sweep,
    "times": times,
    "fast-times": fast_times,
    "bounds": bounds,
    "attacked": attacked,
    "score-functions": score_functions,
    "soundness": soundness,
    "million": million,
}


def filled(page: str, stock: Stock) -> str:
    """The page with all its tables up to date."""
    for name, table in TABLES.items():
        page = put_table(page, name, table(stock))
    return page


def reproduction() -> None:
    """Bring the tables of docs/reproduction.md up to date."""
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), Stock(ROOT / RESULTS)).encode())
    print(f"wrote {PAGE.relative_to(ROOT)}")
