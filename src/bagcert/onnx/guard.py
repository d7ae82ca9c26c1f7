"""The guard band of an exported graph: how far its scores may be off while its certificates still hold."""

from dataclasses import dataclass

from torch import Tensor

from bagcert.errors import UsageError
from bagcert.scorers.steps import IN_LOGITS, IN_UNITS, STEPS, ScoreStep

MOST_SLACK = 2**30  # a score and its band must fit into 32 bits


@dataclass(frozen=True)
class GuardBand:
    """`slack` units around each fixed-point score; votes whose logit lies within `uncertain` of 0 count as unknown."""

    slack: int = 0
    uncertain: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.slack <= MOST_SLACK or not 0 <= self.uncertain < float("inf"):
            raise UsageError(
                f"A guard band must be at least 0 and at most {MOST_SLACK} units, but is {self}. `bagcert audit` says "
                "how much is needed."
            )

    def __bool__(self) -> bool:
        return bool(self.slack or self.uncertain)

    def __str__(self) -> str:
        if self.slack:
            return f"slack {self.slack}"
        return f"uncertain {self.uncertain:g}" if self.uncertain else "none"

    def check(self, step: ScoreStep) -> None:
        """Refuse the band of another kind of score: a vote has no units, a fixed-point score no threshold."""
        if self and step.band is None:
            banded = ", ".join(name for name, step in STEPS.items() if step.band is not None)
            raise UsageError(f"Scores by '{step.name}' take no guard band, only those by {banded}. Export without one.")
        if self.slack and step.band == IN_LOGITS:
            raise UsageError("A model that votes takes --uncertain, not --slack. Give the width in logits.")
        if self.uncertain and step.band == IN_UNITS:
            raise UsageError(
                f"Scores by '{step.name}' take --slack, not --uncertain. Give whole units of 1/{step.unit}."
            )

    def around(self, values: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the most that each score may be."""
        if self.uncertain:
            near = logits.abs() <= self.uncertain
            return values.masked_fill(near, 0), values.masked_fill(near, 1)
        return values - self.slack, values + self.slack
