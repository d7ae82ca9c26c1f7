"""Which attacks a million are: so many units of each case, in an order in which any beginning is a fair sample."""

from collections.abc import Iterable
from dataclasses import dataclass

from bagcert.data.base import derive_seed
from bagcert.stored_models import card

PATCHES = ("2x2", "5x5", "8x8", "1x24", "24x1")
SLICES = 3  # of the test images; a process runs the units of one slice, or of all
DESCENTS, CHEAP, CONTROL = "descents", "cheap", "control"
EACH = {DESCENTS: 512, CHEAP: 2048, CONTROL: 64}  # attacks in a unit
LARGEST = "cifar10"
# Attacks on each model: descents, and patches that cost nothing. The largest model takes four times the arithmetic.
ATTACKS = {
    LARGEST: {DESCENTS: 10_000, CHEAP: 40_000},
    "cifar10-small": {DESCENTS: 20_000, CHEAP: 450_000},
    "cifar10-votes": {DESCENTS: 20_000, CHEAP: 460_000},
}


@dataclass(frozen=True)
class Case:
    """One defense: a shipped model, a patch and a rule."""

    model: str
    patch: str
    rule: str


@dataclass(frozen=True)
class Unit:
    """Attacks of one kind on one case. `control` attacks images that are not proven, by all kinds of patches."""

    case: Case
    kind: str
    number: int
    slice: int

    @property
    def name(self) -> str:
        return "/".join((self.kind, self.case.model, self.case.patch, self.case.rule, str(self.number)))

    @property
    def seed(self) -> int:
        return derive_seed("million", self.name)


def rules_of(model: str, patch: str) -> list[str]:
    """Every rule on a model's card, and `detect` with the threshold there that raises a false alert on 1% of images."""
    facts = card(model)
    alerts = [row for row in facts.get("alerts", ()) if (row["patch"], row["false_alerts"]) == (patch, "1%")]
    above = {row["rule"]: row["above"] for row in alerts}.get("detect")
    named = dict.fromkeys(row["rule"] for row in facts["test"])
    return [*named, *([] if above is None else [f"detect:{above}"])]


def planned(models: Iterable[str]) -> list[str]:
    """Those of the models that the million is about."""
    return [model for model in models if model in ATTACKS]


def all_units(models: list[str]) -> list[Unit]:
    """The controls first, since the patches that won there are tried on proven images; then the others, mixed."""
    controls, placed, cases_before = [], [], 0
    for model in models:
        cases = [Case(model, patch, rule) for patch in PATCHES for rule in rules_of(model, patch)]
        for place, case in enumerate(cases, start=cases_before):
            controls += [Unit(case, CONTROL, number, number) for number in range(SLICES)]
            for kind, wanted in ATTACKS[model].items():
                count = -(-wanted // (len(cases) * EACH[kind]))
                units = [Unit(case, kind, number, (place + number) % SLICES) for number in range(count)]
                placed += [((unit.number + 0.5) / count, unit) for unit in units]
        cases_before += len(cases)
    return controls + [unit for _, unit in sorted(placed, key=lambda found: found[0])]
