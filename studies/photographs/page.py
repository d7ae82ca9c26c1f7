"""Fill docs/imagenet.md and a table of docs/comparison.md from the stored results on photographs.

python -m studies photographs page
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from bagcert.files import write_atomically
from bagcert.report.drawing import PALETTE, picture
from bagcert.report.tables import percent
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import Evaluation
from bagcert.training.recipe import load_recipe
from studies.common.results import BENCHMARKS, RESULTS, ROOT
from studies.common.tables import Lines, put_table
from studies.photographs.runs import MAIN, PATCHES, RUNS

PAGE, COMPARISON = ROOT / "docs" / "imagenet.md", ROOT / "docs" / "comparison.md"
FIGURE = ROOT / "docs" / "figures" / "one-hot.svg"
OPEN = "not measured yet"
ONE_HOT = {"rf17-one-hot-0": "σ = 0", "rf17-one-hot-0.3": "σ = 0.3", "rf17": "σ = 1"}


def stored(name: str, ending: str) -> Path | None:
    path = ROOT / RESULTS / "photographs" / f"{name}{ending}"
    return path if path.exists() else None


def facts_of(name: str) -> dict[str, Any] | None:
    path = stored(name, ".json")
    return json.loads(path.read_text(encoding="utf-8")) if path else None


def shares(rows: Rows, patch: str, rule: str) -> str:
    entry = Evaluation(patch, rule)
    if entry not in rows.results:
        return "–"
    found = rows.accuracies(entry)
    return f"{percent(found.clean)} / {percent(found.certified)}"


def accuracies() -> Lines:
    """Clean and certified accuracy of every run."""
    columns = [(patch, rule) for rule in ("every-region", "two-mask") for patch in PATCHES]
    lines: Lines = [("run", *(f"{patch}, {rule}" for patch, rule in columns), f"attacked, {MAIN}", "minutes")]
    for name in RUNS:
        rows, attack, facts = stored(name, ".jsonl.gz"), stored(name, "-attack.jsonl.gz"), facts_of(name)
        if rows is None or attack is None or facts is None:
            lines.append((name, *[OPEN] * (len(lines[0]) - 1)))
            continue
        table = read_rows(rows)
        cells = [shares(table, *column) for column in columns]
        lines.append((name, *cells, left(attack), f"{facts['seconds'] / 60:.1f}"))
    return lines


def own_rules() -> Lines:
    """Every run by its own rule against the main patch, for the comparison."""
    heads = ("run", "recipe", "rule", f"{MAIN}: clean / certified %", "certified ≤ left % under attack (images)")
    lines: Lines = [heads]
    for name, (recipe_name, _) in RUNS.items():
        rows, attack = stored(name, ".jsonl.gz"), stored(name, "-attack.jsonl.gz")
        rule = load_recipe(recipe_name).evaluation.rule
        if rows is None or attack is None:
            lines.append((name, f"`{recipe_name}`", rule, OPEN, ""))
            continue
        lines.append((name, f"`{recipe_name}`", rule, shares(read_rows(rows), MAIN, rule), left(attack)))
    return lines


def left(attack: Path) -> str:
    broken = read_attack_rows(attack)
    certified, attacked = percent(broken.certified_accuracy), percent(broken.attacked_accuracy)
    return f"{certified} ≤ {attacked} ({len(broken.labels):,})"


def best_five() -> Lines:
    """How often the label is among the five best, and cannot be pushed out."""
    lines: Lines = [("run", "clean, top 5", *(f"certified, top 5, {patch}" for patch in PATCHES))]
    for name in RUNS:
        facts = facts_of(name)
        if facts is None:
            lines.append((name, *[OPEN] * (len(PATCHES) + 1)))
            continue
        kept = [percent(facts["certified_top5"][patch]) if facts["certified_top5"] else "–" for patch in PATCHES]
        lines.append((name, percent(facts["clean_top5"]), *kept))
    return lines


def times() -> Lines:
    """50,000 images at ImageNet's size."""
    path = BENCHMARKS / "imagenet.json"
    lines: Lines = [("part", "seconds", "peak memory, GiB")]
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    parts = {
        "network": "network, on random pixels",
        "network_and_every_region": "network and every-region",
        "every_region": "every-region alone, on maps that look trained",
        "two_mask": "two-mask alone, on the same maps",
    }
    for key, words in parts.items():
        if f"{key}_seconds" not in found:
            lines.append((words, OPEN, ""))
            continue
        lines.append((words, f"{found[f'{key}_seconds']:.1f}", f"{found[f'{key}_peak_gib']:.1f}"))
    return lines


def one_hot_figure() -> str | None:
    """Clean and certified accuracy and the votes of a position over training, for three weights of the penalty."""
    curves = {words: facts["curve"] for name, words in ONE_HOT.items() if (facts := facts_of(name)) is not None}
    if not curves:
        return None

    def draw() -> Figure:
        figure = Figure(figsize=(9.6, 3.4), layout="constrained")
        panels = figure.subplots(1, 3)
        for ax, (key, title) in zip(panels, PANELS.items(), strict=True):
            for color, (words, curve) in zip(PALETTE, curves.items(), strict=False):
                factor = 1 if key == "votes" else 100
                ax.plot(
                    [line["step"] for line in curve], [factor * line[key] for line in curve], color=color, label=words
                )
            ax.set_title(title)
            ax.set_xlabel("steps")
            ax.set_ylim(bottom=0)
        panels[0].legend()
        return figure

    return picture("one-hot", "What the one-hot penalty does", "", draw).svg


PANELS = {"clean": "clean, %", "certified": f"certified, {MAIN}, %", "votes": "classes that a position votes for"}
TABLES: dict[Path, dict[str, Callable[[], Lines]]] = {
    PAGE: {"accuracies": accuracies, "best-five": best_five, "times": times},
    COMPARISON: {"photographs": own_rules},
}


def filled(path: Path) -> str:
    """The page with its tables up to date."""
    page = path.read_text(encoding="utf-8")
    for name, table in TABLES[path].items():
        page = put_table(page, name, table())
    return page


def page() -> None:
    """Bring the pages up to date."""
    for path in TABLES:
        write_atomically(path, filled(path).encode())
        print(f"wrote {path.relative_to(ROOT)}")
    if (figure := one_hot_figure()) is not None:
        write_atomically(FIGURE, figure.encode())
        print(f"wrote {FIGURE.relative_to(ROOT)}")
