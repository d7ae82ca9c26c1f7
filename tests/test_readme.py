"""The README's numbers are those of cards and stored rows."""

import re
from pathlib import Path

from bagcert.defense import card, shipped_models
from bagcert.rows.accuracy import accuracies
from bagcert.rows.format import read_rows
from studies.figures.plan import RESULTS
from studies.rivals.results import standings

README = Path(__file__).parent.parent / "README.md"
ROW = re.compile(r"^\| `([a-z0-9-]+)` \| (\d+x\d+) \| ([a-z-]+) \| ([\d.]+) \| ([\d.]+) \|$", re.MULTILINE)


def test_every_result_is_on_a_card() -> None:
    rows = ROW.findall(README.read_text(encoding="utf-8"))
    assert {name for name, *_ in rows} == set(shipped_models())
    for name, patch, rule, clean, certified in rows:
        found = next(row for row in card(name)["test"] if (row["patch"], row["rule"]) == (patch, rule))
        assert (clean, certified) == (f"{100 * found['clean']:.2f}", f"{100 * found['certified']:.2f}")


def test_training_commands_are_those_on_the_cards() -> None:
    text = README.read_text(encoding="utf-8")
    for name in shipped_models():
        assert f"| `{name}` | `{card(name)['command']}` |" in text


def test_another_seed_is_what_its_rows_say() -> None:
    named = re.findall(
        r"([\d.]+) / ([\d.]+)\s+\(5x5;\s+`(studies/results/seeds/[^`]+)`\)", README.read_text(encoding="utf-8")
    )
    assert [path for *_, path in named] == [
        "studies/results/seeds/pair-cifar10-1.jsonl.gz",
        "studies/results/seeds/pair-cifar10-once-0.jsonl.gz",
        "studies/results/seeds/pair-cifar10-once-1.jsonl.gz",
        "studies/results/seeds/two-mask-cifar10-1.jsonl.gz",
        "studies/results/seeds/fast-cifar10-1.jsonl.gz",
        "studies/results/seeds/fast-cifar10-24-epochs-0.jsonl.gz",
        "studies/results/seeds/fast-cifar10-24-epochs-1.jsonl.gz",
    ]
    for clean, certified, path in named:
        rows = read_rows(README.parent / path)
        (certificate,) = (found for entry, found in rows.results.items() if entry.patch == "5x5")
        shares = accuracies(certificate, rows.labels)
        assert (clean, certified) == (f"{100 * shares.clean:.2f}", f"{100 * shares.certified:.2f}")


def test_rivals_are_those_of_the_rows() -> None:
    """All but the paper's own network, which has not had its hours, the best proof first."""
    found = [standing for standing in standings(README.parent / RESULTS) if standing.name != "bagcert"]
    lines = []
    for standing in found:
        shares, cost = standing.at(standing.rules[0]), standing.cost
        assert shares is not None and cost is not None and cost.on_gpu
        name = f"`{standing.name}` (ours)" if standing.ours else f"`{standing.name}`"
        numbers = f"{100 * shares.clean:.2f} | {100 * shares.certified:.2f} | {cost.passes:,} | {cost.seconds:.1f}"
        lines.append((-shares.certified, f"| {name} | {standing.rules[0]} | {numbers} |"))
    text = README.read_text(encoding="utf-8")
    table = text.split("<!-- rivals -->\n")[1].split("\n<!-- /rivals -->")[0]
    assert table.splitlines()[2:] == [line for _, line in sorted(lines)]
    training = {each.name: each.cost.training for each in found if each.cost}
    seconds = {name: f"{each.seconds:.0f}" for name, each in training.items()}
    theirs = sorted((seconds[each.name] for each in found if not each.ours), key=int)
    shared = [seconds[each.name] for each in found if each.ours and training[each.name].beside]
    (alone,) = (f"`{name}` {seconds[name]} alone" for name, each in training.items() if not each.beside)
    spent = f"for {theirs[0]} to {theirs[-1]} seconds of a shared GPU (ours: {' and '.join(shared)}; {alone})"
    assert spent in " ".join(text.split())
