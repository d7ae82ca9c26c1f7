"""The numbers of docs/frontier.md that have a file are those of the file."""

import json
from pathlib import Path
from typing import Any

import pytest

from bagcert.rows.accuracy import accuracies
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.stored_models import shipped_models

ROOT = Path(__file__).parents[2]
ROUNDS = {
    each.split(":")[0]: [line.replace("*", "") for line in each.split("\n## ")[0].splitlines() if line.startswith("|")]
    for each in (ROOT / "docs/frontier.md").read_text(encoding="utf-8").split("## Round ")[1:]
}
FRONTIER = ROOT / "studies/results/frontier"
SETTINGS = {  # of round 7
    ("128-400, sharpness-aware", 1): "`128-400`, sharpness-aware",
    ("256-832", 1): "`256-832`",
    ("192-576", 1): "one of the pair, `192-576`",
    ("192-576", 2): "the pair",
}


def stored(number: int, epochs: int = 20) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What all runs of a round have in common, and the runs."""
    text = (ROOT / f"studies/results/frontier/round-{number}.jsonl").read_text(encoding="utf-8")
    head, *runs = map(json.loads, text.splitlines())
    assert (head["images"], head["epochs"], head["split"]) == (5000, epochs, "validation")
    return head, runs


def shares_of(run: dict[str, Any]) -> str:
    clean, certified = f"{100 * run['clean']:.2f}", f"{100 * run['certified']:.2f}"
    return f"| {clean} / {certified} |" if run["mirrored"] else f"| {clean} | {certified} |"


def test_validation_numbers_of_round_7_are_those_that_were_stored() -> None:
    head, runs = stored(7)
    assert head["seed"] == 0
    lines = {line.split("|")[1].strip(): line for line in ROUNDS["7"]}
    for run in runs:
        line = lines[SETTINGS[run["network"], run["networks"]]]
        assert shares_of(run) in line
        assert run["seconds"] is None or f"| {run['seconds']:.0f} |" in line


def test_validation_numbers_of_round_8_are_those_that_were_stored() -> None:
    lines: dict[tuple[str, int], str] = {}
    for line in (line for line in ROUNDS["8"][2:] if line.startswith(("| `", "| same"))):
        setting, seed = (part.strip() for part in line.split("|")[1:3])
        before = next(reversed(lines), ("", 0))[0]
        lines[before if setting == "same" else setting, int(seed)] = line
    seen = set()
    for run in stored(8)[1]:
        width, *rest = run["network"].split(", ")
        setting = ", ".join([f"`{width}`", *(["the pair"] if run["networks"] == 2 else []), *rest])
        line = lines[setting, run["seed"]]
        seen.add((setting, run["seed"]))
        assert shares_of(run) in line
        assert f"| {run['seconds']:.0f} |" in line if run["alone"] else "| shared |" in line
    assert seen == set(lines), "a line without a stored run"


def test_mixed_pairs_of_round_8_are_those_that_were_stored() -> None:
    text = (ROOT / "studies/results/frontier/round-8-mixed.jsonl").read_text(encoding="utf-8")
    head, *runs = map(json.loads, text.splitlines())
    alone, *pairs = ROUNDS["8"][-4:]
    lines = {(7,): alone, (5,): alone, (7, 7): pairs[0], (5, 5): pairs[1], (7, 5): pairs[2]}
    for run in runs:
        shown = [part.split("; ") for part in lines[tuple(run["fields"])].strip("| ").split(" | ")[1:]]
        share = [f"{100 * run[key] / head['images']:.2f}" for key in ("right", "certified")]
        assert share in [list(each) for each in zip(*shown, strict=True)]
    assert len(runs) == 6, "all that the table shows"


def shown(line: str) -> list[str]:
    return [part.strip() for part in line.strip("| ").split("|")]


def both(run: dict[str, Any]) -> str:
    return f"{100 * run['clean']:.2f} / {100 * run['certified']:.2f}"


def test_validation_numbers_of_round_9_are_those_that_were_stored() -> None:
    runs = {(run["network"], run["weights"], run["views"]): run for run in stored(9)[1]}
    lines = [shown(line) for line in ROUNDS["9"]]
    trials = [line for line in lines if line[0].startswith("`128-400`")]
    for setting, clean, certified, mirrored, averaged, training, _ in trials:
        name = setting.replace("`", "")
        assert f"{clean} / {certified}" == both(runs[name, "last", "plain"])
        assert mirrored == both(runs[name, "last", "mirrored"])
        assert averaged == both(runs[name, "average", "mirrored"])
        assert training == f"{100 * runs[name, 'last', 'plain']['training_certified']:.1f}"
    views = {"one pass": "plain", "four shifted passes": "shifted"}
    together = [line for line in lines if len(line) == 3 and line[0].startswith(("fields", "four"))]
    for name, clean, certified in together:
        setting, _, view = name.rpartition(", ")
        key = (setting, views[view]) if view in views else (name, "mirrored")
        assert f"{clean} / {certified}" == both(runs[key[0], "last", key[1]])
    assert (len(trials), len(together)) == (5, 8)


def test_final_numbers_of_round_9_are_those_that_were_stored() -> None:
    text = (ROOT / "studies/results/frontier/round-9-final.jsonl").read_text(encoding="utf-8")
    head, *runs = map(json.loads, text.splitlines())
    assert (head["split"], head["images"]) == ("test", 10_000)
    numbers = {(str(run["seed"]), run["views"]): run for run in runs}
    lines = [line for line in map(shown, ROUNDS["9"]) if len(line) == 7 and line[3] in ("0", "1", "0 and 1")]
    for _, epochs, seconds, seed, clean, certified, once in lines:
        assert epochs == str(head["epochs"])
        assert f"{clean} / {certified}" == both(numbers[seed, "mirrored"]) and once == both(numbers[seed, "plain"])
        assert seed == "0 and 1" or seconds == f"{numbers[seed, 'mirrored']['seconds']:.0f}"
    assert len(lines) == 3


def test_validation_numbers_of_round_10_are_those_that_were_stored() -> None:
    runs = {(run["network"], run["views"]): run for run in stored(10)[1]}
    before = {(run["network"], run["views"]): run for run in stored(9)[1] if run["weights"] == "last"}
    lines = [shown(line) for line in ROUNDS["10"]]
    trials = [line for line in lines if line[0].startswith("`128-400`")]
    for setting, clean, certified, mirrored, training, untaught in trials:
        name = setting.replace("`", "")
        assert f"{clean} / {certified}" == both(runs[name, "plain"]) and mirrored == both(runs[name, "mirrored"])
        assert training == f"{100 * runs[name, 'plain']['training_certified']:.1f}"
        assert untaught == "not run" or untaught == both(before[name.removesuffix(", taught"), "mirrored"])
    together = [line for line in lines if len(line) == 4 and line[0].startswith("fields")]
    for name, once, mirrored, untaught in together:
        assert once == both(runs[name, "plain"]) and mirrored == both(runs[name, "mirrored"])
        assert untaught == "not run" or untaught == both(before[name, "mirrored"])
    assert (len(trials), len(together), len(runs)) == (4, 4, 16)


def test_final_numbers_of_round_10_are_those_that_were_stored() -> None:
    text = (ROOT / "studies/results/frontier/round-10-final.jsonl").read_text(encoding="utf-8")
    head, *runs = map(json.loads, text.splitlines())
    assert (head["split"], head["images"]) == ("test", 10_000)
    numbers = {(len(run["fields"]), 5 in run["fields"], str(run["seed"]), run["views"]): run for run in runs}
    lines = [line for line in map(shown, ROUNDS["10"]) if len(line) == 7 and line[3] in ("0", "1", "0 and 1")]
    for networks, _, seconds, seed, clean, certified, once in lines:
        key = (4 if "four" in networks else 2, "7 and 7" not in networks, seed)
        mirrored = numbers[*key, "mirrored"]
        assert f"{clean} / {certified}" == both(mirrored) and once == both(numbers[*key, "plain"])
        assert seconds == f"{mirrored['seconds']:.0f}"
        assert networks == "same" or f"{mirrored['parameters'] / 1e6:.1f} M" in networks
    assert (len(lines), len(runs)) == (4, 8)


def test_counts_of_round_10_are_those_that_were_stored() -> None:
    text = (ROOT / "studies/results/frontier/round-10-counts.jsonl").read_text(encoding="utf-8")
    _, seeds, rounds, *_, four, classes = map(json.loads, text.splitlines())
    page = " ".join((ROOT / "docs/frontier.md").read_text(encoding="utf-8").split("### What ten rounds")[1].split())
    for pairs in (seeds, rounds):
        assert f"certify {pairs['certified_by_all'] / 100:.2f} %" in page
        assert f"at least one of them {pairs['certified_by_any'] / 100:.2f} %" in page or (
            f"at least one {pairs['certified_by_any'] / 100:.2f} %" in page
        )
    assert f"overturns {four['right_by_plain_sums_only']} right decisions, and {four['right_by_the_rule_only']}" in page
    shares = {name: f"{count / 10:.1f}" for name, count in classes["certified_by_class"].items()}
    three = {name: shares.pop(name) for name in ("cat", "dog", "bird")}
    assert "{cat} % of the cats, {dog} % of the dogs and {bird} % of the birds".format(**three) in page
    assert f"{min(shares.values())} to {max(shares.values())} % of the other" in page


def test_validation_numbers_of_round_11_are_those_that_were_stored() -> None:
    runs = [run for run in stored(11)[1] if "loss" in run]
    lines = [shown(line) for line in ROUNDS["11"]]
    trials = [line for line in lines if len(line) == 6 and line[1] == "20"]
    for run, (setting, _, plain, *pairs) in zip(runs, trials, strict=False):
        expected = ", mirrored" if run["views"] == "mirrored" else f"`, receptive field 9, {run['loss']}"
        assert expected in setting and plain == f"{100 * run['plain']:.2f}"
        assert pairs == [both(run[rate]) for rate in ("t=0", "1%", "5%")]
    fields = [line for line in lines if len(line) == 3 and line[1] == "28"]
    for run, (setting, _, certified) in zip(runs[len(trials) :], fields, strict=True):
        assert setting.replace("`", "") == run["network"] and certified == f"{100 * run['t=0']['certified']:.1f}"
    assert (len(trials), len(fields)) == (4, 3)


def test_final_numbers_of_round_11_are_those_that_were_stored() -> None:
    text = (ROOT / "studies/results/frontier/round-11-final.jsonl").read_text(encoding="utf-8")
    head, recovery, alerts = map(json.loads, text.splitlines())
    assert (head["split"], head["images"]) == ("test", 10_000)
    ours, before = (shown(line) for line in ROUNDS["11"] if len(shown(line)) == 8 and shown(line)[2] == "0")
    assert " / ".join(ours[3:5]) == both(recovery)
    assert ours[5:] == [both(alerts[rate]) for rate in ("t=0", "1%", "5%")]
    assert ours[1] == f"{head['parameters'] / 1e6:.2f} M"
    small = json.loads((ROOT / "studies/results/detection/cifar10-small.json").read_text(encoding="utf-8"))
    found = small["patches"]["5x5"]
    assert " / ".join(before[3:5]) == both(found["recovery"])
    assert before[5:] == [both(found[rate]) for rate in ("t=0", "1%", "5%")]


def test_numbers_of_round_12_are_those_that_were_stored() -> None:
    runs = stored(12, epochs=16)[1]
    lines = [shown(line) for line in ROUNDS["12"]]
    trials = [line for line in lines if len(line) == 5 and line[1].endswith(" M")]
    for run, (setting, parameters, clean, certified, _) in zip(runs, trials, strict=True):
        assert setting.replace("`", "").removesuffix(", half unmasked") == run["network"]
        assert (run["weight"] == 0.5) == ("half unmasked" in setting)
        assert f"{clean} / {certified}" == both(run) and parameters == f"{run['parameters'] / 1e6:.2f} M"
    head, *finals = map(json.loads, (FRONTIER / "round-12-final.jsonl").read_text(encoding="utf-8").splitlines())
    ends = [line for line in lines if len(line) == 7 and line[2] == str(head["epochs"])]
    for run, seconds, line in zip(finals, head["seconds"]["7"], ends, strict=True):
        assert line[1] == f"{head['parameters'] / 1e6:.2f} M" and line[3:5] == [f"{seconds:.0f}", str(run["seed"])]
        rows = read_rows(FRONTIER / run["rows"])
        (entry,) = rows.results
        shares = rows.accuracies(entry)
        assert (shares.clean, shares.certified) == (run["clean"], run["certified"]) and " / ".join(line[5:]) == both(
            run
        )
    assert (len(trials), len(ends)) == (5, 2)


@pytest.mark.slow
def test_final_numbers_are_those_of_the_rows() -> None:
    seeds = ROOT / "studies/results/seeds"
    both = [seeds / f"pair-cifar10-{seed}.jsonl.gz" for seed in (0, 1)]
    once = [seeds / f"pair-cifar10-once-{seed}.jsonl.gz" for seed in (0, 1)]
    trained = json.loads((seeds / "pair-cifar10-0-card.json").read_text(encoding="utf-8"))
    assert (trained["steps"], round(trained["seconds"])) == (3131, 383)
    assert trained["weights_sha256"] == read_rows(both[0]).header["weights_sha256"]
    lines = [line for line in ROUNDS["7"] if line.startswith(("| `pair-cifar10`", "| same"))]
    for line, mirrored, alone in zip(lines, both, once, strict=True):
        shares = []
        for path in (mirrored, alone):
            rows = read_rows(path)
            shares.append(accuracies(rows.results[Evaluation("5x5", "two-mask")], rows.labels))
        found = [(f"{100 * each.clean:.2f}", f"{100 * each.certified:.2f}") for each in shares]
        assert f"| {' | '.join(found[0])} | {' / '.join(found[1])} |" in line


def test_numbers_of_round_13_are_those_of_the_rows() -> None:
    head, *finals = map(json.loads, (FRONTIER / "round-13-final.jsonl").read_text(encoding="utf-8").splitlines())
    assert (head["split"], head["images"], head["device"]) == ("test", 10_000, "NVIDIA H200")
    lines = [line for line in map(shown, ROUNDS["13"]) if len(line) == 9 and line[5] in ("0", "1")]
    for run, line in zip(finals, lines, strict=True):
        rows = read_rows(FRONTIER / run["rows"])
        shares = rows.accuracies(Evaluation("5x5", "two-mask"))
        assert line[6:8] == [f"{100 * each:.2f}" for each in (shares.clean, shares.certified)]
        assert line[8] == f"{100 * rows.accuracies(Evaluation('5x5', 'detect')).certified:.2f}"
        assert line[1] == f"{run['parameters'] / 1e6:.2f} M" and line[5] == str(run["seed"])
        assert (line[3], line[4]) == (f"{run['epochs']:g}", f"{run['seconds']:.0f}")
    assert len(lines) == 5
    text = (ROOT / "docs/frontier.md").read_text(encoding="utf-8").partition("## Round 13")[2]
    for name in ("two", "three"):  # fields, on generated images
        rows = read_rows(FRONTIER / head["generated"][name])
        shares = rows.accuracies(Evaluation("5x5", "two-mask"))
        assert f"{100 * shares.clean:.2f} / {100 * shares.certified:.2f}" in text
    training = read_rows(FRONTIER / head["training"]["rows"])
    shares = training.accuracies(Evaluation("5x5", "two-mask"))
    assert f"It certifies {100 * shares.certified:.1f} % of its first {len(training):,} training images." in text


def test_numbers_of_round_14_are_those_of_the_rows() -> None:
    head, *finals = map(json.loads, (FRONTIER / "round-14-final.jsonl").read_text(encoding="utf-8").splitlines())
    assert (head["split"], head["images"], head["training_device"]) == ("test", 10_000, "NVIDIA H200")
    text = (ROOT / "docs/frontier.md").read_text(encoding="utf-8").partition("## Round 14")[2]
    table = list(map(shown, text.splitlines()))
    lines = [line for line in table if len(line) == 9 and line[5] in ("0", "1")]
    for run, line in zip(finals, lines, strict=True):
        if run["rows"] in shipped_models():
            rows = read_rows(shipped_models()[run["rows"]] / "rows.jsonl.gz")
            found = json.loads((ROOT / f"studies/results/detection/{run['rows']}.json").read_text("utf-8"))
            assert found["weights_sha256"] == rows.header["weights_sha256"]
            alone = found["patches"]["5x5"]["t=0"]["certified"]
        else:
            rows = read_rows(FRONTIER / run["rows"])
            alone = rows.accuracies(Evaluation("5x5", "detect")).certified
        shares = rows.accuracies(Evaluation("5x5", "two-mask"))
        assert line[6:] == [f"{100 * each:.2f}" for each in (shares.clean, shares.certified, alone)]
        assert line[1] == f"{run['parameters'] / 1e6:.2f} M" and line[5] == str(run["seed"])
        assert (line[3], line[4]) == (f"{run['epochs']:g}", f"{run['seconds']:.0f}")
    assert len(lines) == 4
    _, *trials = map(json.loads, (FRONTIER / "round-14.jsonl").read_text(encoding="utf-8").splitlines())
    for trial in trials:
        runs = trial["counted"].values() if "counted" in trial else (trial["validation"], trial["generated"])
        cells = [both(each) for each in runs]
        start = [str(trial["seed"])] if "counted" in trial else [trial["setting"], f"{trial['steps']:,}"]
        assert [line for line in table if line[: len(start) + len(cells)] == start + cells], trial
    assert len(trials) == 5
