"""The numbers of docs/frontier.md that have a file are those of the file."""

import json
from pathlib import Path

from bagcert.defenses.load import card, shipped_models
from bagcert.evaluation.accuracies import accuracies
from bagcert.evaluation.rows import Evaluation, read_rows

ROOT = Path(__file__).parent.parent
ROUND_7 = (ROOT / "docs/frontier.md").read_text(encoding="utf-8").split("## Round 7")[1].split("\n## ")[0]
LINES = {line.split("|")[1].strip(): line for line in ROUND_7.splitlines() if line.startswith("|")}
SETTINGS = {
    ("128-400, sharpness-aware", 1): "`128-400`, sharpness-aware",
    ("256-832", 1): "`256-832`",
    ("192-576", 1): "one of the pair, `192-576`",
    ("192-576", 2): "the pair",
}


def test_validation_numbers_are_those_that_were_stored() -> None:
    head, *runs = map(json.loads, (ROOT / "results/frontier/round-7.jsonl").read_text(encoding="utf-8").splitlines())
    assert (head["images"], head["epochs"], head["seed"]) == (5000, 20, 0)
    for run in runs:
        line = LINES[SETTINGS[run["network"], run["networks"]]].replace("*", "")
        clean, certified = f"{100 * run['clean']:.2f}", f"{100 * run['certified']:.2f}"
        assert (f"{clean} / {certified}" if run["mirrored"] else f"| {clean} | {certified} |") in line
        assert run["seconds"] is None or f"| {run['seconds']:.0f} |" in line


def test_final_numbers_are_those_of_the_rows() -> None:
    seeds = ROOT / "results/seeds"
    both = [shipped_models()["cifar10"] / "rows.jsonl.gz", seeds / "pair-cifar10-1.jsonl.gz"]
    once = [seeds / f"pair-cifar10-once-{seed}.jsonl.gz" for seed in (0, 1)]
    assert (card("cifar10")["steps"], round(card("cifar10")["seconds"])) == (3131, 383)
    lines = [line.replace("*", "") for line in ROUND_7.splitlines() if line.startswith(("| `pair-cifar10`", "| same"))]
    for line, mirrored, alone in zip(lines, both, once, strict=True):
        shares = []
        for path in (mirrored, alone):
            rows = read_rows(path)
            shares.append(accuracies(rows.results[Evaluation("5x5", "two-mask")], rows.labels))
        found = [(f"{100 * each.clean:.2f}", f"{100 * each.certified:.2f}") for each in shares]
        assert f"| {' | '.join(found[0])} | {' / '.join(found[1])} |" in line
