"""What is compared: which defenses, against which patches, by which rules, and where their rows lie.

studies/results/rivals/ds-column.jsonl.xz         certificates of all test images
studies/results/rivals/ibp-2x2.jsonl.xz           views depend on the patch: one file per patch
studies/results/rivals/ds-column-attack.jsonl.gz  an attack on the first test images
studies/results/rivals/ds-column.json             its costs; a shipped model has only this file
"""

from dataclasses import dataclass
from pathlib import Path

from bagcert.rows.format import Evaluation
from bagcert.rules import RULES
from studies.rivals.catalog import DEFENSES, Entry

PATCHES = ("5x5", "2x2", "8x8", "1x24", "24x1")  # height x width; the first is the one that all papers share
MAIN_PATCH = PATCHES[0]
DATA, SPLIT = "cifar10", "test"
COMMAND = "python -m studies rivals run"


@dataclass(frozen=True)
class Rival:
    """A defense of the catalog that is trained here; its own rule comes first."""

    name: str
    rules: tuple[str, ...]
    weights_of: str | None = None  # another rival, whose training gives the same weights

    @property
    def entry(self) -> Entry:
        return DEFENSES[self.name]

    @property
    def main(self) -> Evaluation:
        return Evaluation(MAIN_PATCH, self.rules[0])

    @property
    def parts(self) -> dict[str, list[Evaluation]]:
        """The rows files by name, and what each evaluates: one pass serves all patches, except for views."""
        apart = any(RULES[rule].needs_views for rule in self.rules)
        parts: dict[str, list[Evaluation]] = {}
        for patch in PATCHES:
            name = f"{self.name}-{patch}" if apart else self.name
            parts.setdefault(name, []).extend(Evaluation(patch, rule) for rule in self.rules)
        return parts


SMOOTHING = ("largest-region", "every-region", "two-mask")
RIVALS = (
    Rival("ds-column", SMOOTHING),
    Rival("ds-row", SMOOTHING),
    Rival("ds-block", SMOOTHING),
    Rival("clipped-bagnet", ("every-region",)),
    Rival("mask-bn", ("masked",)),
    Rival("mask-ds", ("masked",), weights_of="ds-column"),
    Rival("patchcleanser", ("unanimous",)),
    Rival("ibp", ("unanimous",)),
    Rival("bagcert", ("every-region", "largest-region", "two-mask")),
)
# The rules to list for each shipped model, if its rows have them.
OURS: dict[str, tuple[str, ...]] = {
    "cifar10": ("two-mask",),
    "cifar10-distilled": ("two-mask",),
    "cifar10-small": ("two-mask",),
    "cifar10-votes": ("every-region", "two-mask"),
}


def rows_path(results: Path, part: str) -> Path:
    return results / "rivals" / f"{part}.jsonl.xz"


def attack_path(results: Path, name: str) -> Path:
    return results / "rivals" / f"{name}-attack.jsonl.gz"


def cost_path(results: Path, name: str) -> Path:
    return results / "rivals" / f"{name}.json"
