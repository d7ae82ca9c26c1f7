"""How hard an attack tries, and what it sees of a defense."""

from dataclasses import dataclass
from typing import Protocol

from bagcert.errors import UsageError
from bagcert.rules import Certificate, IntegerScores, Rule
from bagcert.scorers import Scorer
from bagcert.scorers.base import Need
from bagcert.tensors import Images
from bagcert.threats import Threat


class Attackable(Protocol):
    """What an attack sees of a defense: everything."""

    @property
    def scorer(self) -> Scorer: ...
    @property
    def rule(self) -> Rule: ...
    @property
    def threat(self) -> Threat: ...
    def scores(self, images: Images, need: Need = ...) -> IntegerScores: ...
    def certify_integers(self, scores: IntegerScores, exact: bool = True) -> Certificate: ...


@dataclass(frozen=True)
class AttackSettings:
    """How hard to try; the defaults are those of App. A.2, except for the placement and the target.

    Differs from the paper: it starts where Σ_{(i,j) ∉ R(l)} Δ is least, which is not where Condition 3.2 is weakest,
    and fixes the class that is closest there; we start where the rule's own certificate is weakest, against whichever
    class is closest. `paper_place` and `fixed_target` do as the paper does.

    >>> import torch, bagcert
    >>> defense = bagcert.load("cifar10-small")
    >>> defense.attack(torch.rand(2, 3, 32, 32), [0, 1], bagcert.AttackSettings(steps=2)).unsound.any()
    tensor(False)
    """

    steps: int = 100
    step_size: float = 0.025
    restarts: int = 1  # the first starts at the image's own pixels, the others at random ones
    places: int = 1  # the weakest ones
    sweep: bool = False  # all placements instead
    paper_place: bool = False
    fixed_target: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "restarts", "places"):
            if getattr(self, name) < 1:
                raise UsageError(f"The number of {name} must be at least 1, but is {getattr(self, name)}.")
        if not 0 < self.step_size <= 1:
            raise UsageError(
                f"The step size must be above 0 and at most 1, but is {self.step_size:g}. Pixels lie in 0..1."
            )
