"""The results of each defense: rows, attack and costs, all of the same weights, as far as they exist."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.rows.accuracy import Accuracies
from bagcert.rows.attacked import AttackRows, read_attack_rows
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import Evaluation
from bagcert.stored_models import card, shipped_models
from studies.figures.plan import bound_rows
from studies.figures.stored_results import shipped_rows
from studies.rivals.costs import Cost, read_cost
from studies.rivals.plan import (
    COMMAND,
    DATA,
    MAIN_PATCH,
    OURS,
    PATCHES,
    RIVALS,
    SPLIT,
    Rival,
    attack_path,
    cost_path,
    rows_path,
)


@dataclass(frozen=True, eq=False)
class Standing:
    """One defense by its own rule and others; what has not been run is missing."""

    name: str
    ours: bool
    rules: tuple[str, ...]  # its own first
    results: dict[Evaluation, Accuracies] = field(default_factory=dict)
    attack: AttackRows | None = None  # by its own rule, against the main patch
    cost: Cost | None = None

    def at(self, rule: str, patch: str = MAIN_PATCH) -> Accuracies | None:
        return self.results.get(Evaluation(patch, rule))


def standings(results: Path) -> list[Standing]:
    """Our models and the rivals, in the order of the table."""
    if not results.is_dir():
        raise UsageError(f"There is no folder {results} of stored rows. Give it by --results.")
    ours = [shipped(results, model) for model in OURS if model in shipped_models()]
    return [*ours, *(trained(results, rival) for rival in RIVALS)]


def shipped(results: Path, model: str) -> Standing:
    """A shipped model, which comes with its rows."""
    rows = shipped_rows(model)
    digest, own = card(model)["weights_sha256"], card(model)["rule"]
    rules = tuple(sorted(OURS[model], key=lambda rule: rule != own))
    weights = Weights(model, digest, own)
    attack = weights.attack(bound_rows(results, model, MAIN_PATCH))
    return Standing(model, True, rules, accuracies(rows, rules), attack, weights.cost(cost_path(results, model)))


def trained(results: Path, rival: Rival) -> Standing:
    """A rival. Rows of other weights than its first file are of another training and left out."""
    rows = [read_rows(path) for path in (rows_path(results, part) for part in rival.parts) if path.exists()]
    if not rows:
        return Standing(rival.name, False, rival.rules)
    weights = Weights(rival.name, rows[0].header.get("weights_sha256"), rival.rules[0])
    found: dict[Evaluation, Accuracies] = {}
    for part in rows:
        need_owner(part.path, part.header, model=rival.name)
        if part.header.get("weights_sha256") == weights.digest:
            found |= accuracies(part, rival.rules)
    attack = weights.attack(attack_path(results, rival.name))
    return Standing(rival.name, False, rival.rules, found, attack, weights.cost(cost_path(results, rival.name)))


def accuracies(rows: Rows, rules: tuple[str, ...]) -> dict[Evaluation, Accuracies]:
    wanted = [Evaluation(patch, rule) for patch in PATCHES for rule in rules]
    return {entry: rows.accuracies(entry) for entry in wanted if entry in rows.results}


@dataclass(frozen=True)
class Weights:
    """The weights whose attack and costs are wanted; those of other weights are left out."""

    name: str
    digest: str | None
    rule: str  # its own

    def attack(self, path: Path) -> AttackRows | None:
        if not path.exists():
            return None
        found = read_attack_rows(path)
        need_owner(path, found.header, model=self.name, patch=MAIN_PATCH, rule=self.rule)
        return found if found.header.get("weights_sha256") == self.digest else None

    def cost(self, path: Path) -> Cost | None:
        if not path.exists():
            return None
        found = read_cost(path)
        need_facts(path, asdict(found), defense=self.name, patch=MAIN_PATCH, rule=self.rule)
        return found if found.weights_sha256 == self.digest else None


def need_owner(path: Path, header: dict[str, Any], **wanted: str) -> None:
    """Refuse rows of another defense: comparing weights is not enough, since two rivals share them."""
    data = header.get("data")
    need_facts(path, data if isinstance(data, dict) else {}, name=DATA)
    need_facts(path, header, split=SPLIT, **wanted)
    if not isinstance(header.get("weights_sha256"), str):
        raise UsageError(f"{path} does not name the digest of its weights. Make it with {COMMAND}.")


def need_facts(path: Path, facts: dict[str, Any], **wanted: str) -> None:
    for key, value in wanted.items():
        if facts.get(key) != value:
            raise UsageError(
                f"The {key} in {path} must be {value!r}, but is {facts.get(key)!r}. "
                "Files are named after what they hold."
            )


def to_objects(found: list[Standing]) -> list[dict[str, Any]]:
    """What `--json` prints; accuracies are fractions, and what has not been run is null or missing."""
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
