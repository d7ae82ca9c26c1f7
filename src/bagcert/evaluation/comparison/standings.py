"""Where each defense stands: what is there of its rows, its attack and its costs, all of the same weights."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bagcert.defenses.load import card, shipped_models
from bagcert.evaluation.accuracies import Accuracies
from bagcert.evaluation.attacked import AttackRows, read_attack_rows
from bagcert.evaluation.comparison.costs import Cost, read_cost
from bagcert.evaluation.comparison.plan import (
    MAIN_PATCH,
    OURS,
    PATCHES,
    RIVALS,
    Rival,
    attack_path,
    cost_path,
    rows_path,
)
from bagcert.evaluation.figures.plan import bound_rows
from bagcert.evaluation.rows import Evaluation, Rows, read_rows
from bagcert.evaluation.shipping import ROWS


@dataclass(frozen=True, eq=False)
class Standing:
    """One defense by its own rule and others; what has not been run is not there."""

    name: str
    ours: bool
    rules: tuple[str, ...]  # its own first
    results: dict[Evaluation, Accuracies] = field(default_factory=dict)
    attack: AttackRows | None = None  # by its own rule, against the main patch
    cost: Cost | None = None

    def at(self, rule: str, patch: str = MAIN_PATCH) -> Accuracies | None:
        return self.results.get(Evaluation(patch, rule))


def standings(results: Path) -> list[Standing]:
    """Ours and theirs, in the order of the table."""
    ours = [shipped(results, model) for model in OURS if model in shipped_models()]
    return [*ours, *(trained(results, rival) for rival in RIVALS)]


def shipped(results: Path, model: str) -> Standing:
    """A shipped model: its rows come with it."""
    rows = read_rows(shipped_models()[model] / ROWS)
    digest, own = card(model)["weights_sha256"], card(model)["rule"]
    rules = tuple(sorted(OURS[model], key=lambda rule: rule != own))
    attack = current_attack(bound_rows(results, model, MAIN_PATCH), digest)
    return Standing(model, True, rules, accuracies(rows, rules), attack, current_cost(results, model, digest))


def trained(results: Path, rival: Rival) -> Standing:
    """A rival: rows of other weights than those of its first file are of another training, and left out."""
    rows = [read_rows(path) for path in (rows_path(results, part) for part in rival.parts) if path.exists()]
    if not rows:
        return Standing(rival.name, False, rival.rules)
    digest = rows[0].header["weights_sha256"]
    found: dict[Evaluation, Accuracies] = {}
    for part in rows:
        if part.header["weights_sha256"] == digest:
            found |= accuracies(part, rival.rules)
    attack = current_attack(attack_path(results, rival.name), digest)
    return Standing(rival.name, False, rival.rules, found, attack, current_cost(results, rival.name, digest))


def accuracies(rows: Rows, rules: tuple[str, ...]) -> dict[Evaluation, Accuracies]:
    wanted = [Evaluation(patch, rule) for patch in PATCHES for rule in rules]
    return {entry: rows.accuracies(entry) for entry in wanted if entry in rows.results}


def current_attack(path: Path, digest: str) -> AttackRows | None:
    found = read_attack_rows(path) if path.exists() else None
    return found if found is not None and found.header["weights_sha256"] == digest else None


def current_cost(results: Path, name: str, digest: str) -> Cost | None:
    path = cost_path(results, name)
    found = read_cost(path) if path.exists() else None
    return found if found is not None and found.weights_sha256 == digest else None


def to_objects(found: list[Standing]) -> list[dict[str, Any]]:
    """What `--json` prints; accuracies are fractions, and what has not been run is null or not there."""
    return [
        {
            "defense": standing.name,
            "ours": standing.ours,
            "results": [
                {
                    "patch": entry.patch,
                    "rule": entry.rule,
                    "images": shares.images,
                    "clean_accuracy": shares.clean,
                    "certified_accuracy": shares.certified,
                }
                for entry, shares in standing.results.items()
            ],
            "attack": None if standing.attack is None else attack_object(standing.attack),
            "cost": None if standing.cost is None else asdict(standing.cost),
        }
        for standing in found
    ]


def attack_object(rows: AttackRows) -> dict[str, Any]:
    return {
        "patch": rows.header["patch"],
        "rule": rows.header["rule"],
        "images": len(rows.labels),
        "certified_accuracy": rows.certified_accuracy,
        "attacked_accuracy": rows.attacked_accuracy,
        "flips_of_certified": len(rows.flips_of_certified),
    }
