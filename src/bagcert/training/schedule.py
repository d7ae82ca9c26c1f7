"""The learning rate over time."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch

from bagcert.config import Key
from bagcert.errors import UsageError, unknown_name


@dataclass(frozen=True)
class ScheduleConfig:
    """How long to train, and the learning rate over time: a linear warm-up, then down to 0."""

    shape: Annotated[str, Key("how the learning rate falls after the warm-up: cosine or linear")] = "cosine"
    epochs: Annotated[float, Key("passes over the training pictures", 0, 10**6)] = 350  # App. A.1.1
    warmup_epochs: Annotated[
        float, Key("while the learning rate rises; `--minutes` keeps its share of the run", 0, 10**6)
    ] = 10

    def __post_init__(self) -> None:
        if self.shape not in ("cosine", "linear"):
            raise unknown_name("schedule.shape", self.shape, ("cosine", "linear"))
        if not 0 <= self.warmup_epochs < self.epochs:
            raise UsageError(
                f"The value of schedule.warmup_epochs must be at least 0 and below schedule.epochs = {self.epochs}, "
                f"but is {self.warmup_epochs}. Set both: --set schedule.warmup_epochs={max(self.epochs, 0) / 10:g}"
            )

    def factor(self, step: int, steps: int) -> float:
        """The share of the full learning rate for `step` in 0..steps-1. It is never 0: the last step still learns."""
        warmup = steps * self.warmup_epochs / self.epochs
        if step + 1 < warmup:
            return (step + 1) / warmup
        left = (steps - step) / max(1.0, steps - warmup + 1)  # from 1 at the end of the warm-up towards 0
        left = min(1.0, left)
        return left if self.shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every learning rate to this share of its initial one."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
