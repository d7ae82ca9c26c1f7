"""Made-up rows and costs of every rival: no numbers of any real defense."""

from pathlib import Path
from typing import Any

from bagcert.rows.format import AttackRecord, Record
from studies.rivals.costs import Cost, Ties, Training, write_cost
from studies.rivals.plan import (
    MAIN_PATCH,
    RIVALS,
    Rival,
    attack_path,
    cost_path,
    rows_path,
)
from studies.rivals.tie_rules import TIE_RULES
from tests.studies.figure_rows import stored

IMAGES = 200
FACTS = {"data": {"name": "cifar10"}, "split": "test"}
GAIN = {"largest-region": 0, "every-region": 8, "two-mask": 20}  # images more on the same scores


def fill_rival(results: Path, rival: Rival, device: str = "NVIDIA H200") -> None:
    """Of 200 images, 100 + 8 times its place in the plan are right, and about half of these proven."""
    place = RIVALS.index(rival)
    right, proven = 100 + 8 * place, 50 + 4 * place
    header: dict[str, Any] = {"model": rival.name, "weights_sha256": rival.name, "images": IMAGES, **FACTS}
    for part, evaluations in rival.parts.items():
        records = []
        for number in range(IMAGES):
            predicted = 3 if number < right else 4
            for entry in evaluations:
                certified = number < proven + GAIN.get(entry.rule, 0)
                records.append(Record(entry.patch, entry.rule, number, 3, predicted, certified))
        asked = [{"patch": entry.patch, "rule": entry.rule} for entry in evaluations]
        stored(rows_path(results, part), {**header, "evaluations": asked}, records)
    attack = {**header, "kind": "attack", "patch": MAIN_PATCH, "rule": rival.rules[0], "images": 100}
    stored(attack_path(results, rival.name), attack, attacked(rival.rules[0]))
    fill_cost(results, rival.name, rival.name, 0.5 * 3**place, device)


def attacked(rule: str, patch: str = MAIN_PATCH) -> list[AttackRecord]:
    """Of 100 images 40 are certified, and 50 stay right."""
    after = [3 if number < 50 else 4 for number in range(100)]
    return [AttackRecord(patch, rule, number, 3, 3, number < 40, after[number], None) for number in range(100)]


def fill_cost(results: Path, name: str, digest: str, seconds: float, device: str = "NVIDIA H200") -> None:
    tie_rule = TIE_RULES.get(name)
    training = (
        Training("recipe", 32.0, 90.0, device, 2, "ds-column")
        if name == "mask-ds"
        else Training("recipe", 32.0, 90.0, device)
    )
    write_cost(
        cost_path(results, name),
        Cost(
            defense=name,
            weights_sha256=digest,
            patch=MAIN_PATCH,
            rule=next((rival.rules[0] for rival in RIVALS if rival.name == name), "two-mask"),
            device=device,
            torch="2.11",
            precision="bfloat16",
            passes=32,
            flops=35_600_000_000,
            parameters=11_200_000,
            images=500 if name == "ds-block" else 10_000,
            seconds=seconds,
            training=training,
            ties=None if tie_rule is None else Ties(tie_rule[0], 7),
        ),
    )


def fill(results: Path) -> None:
    for rival in RIVALS:
        fill_rival(results, rival)
