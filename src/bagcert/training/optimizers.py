"""Which optimizer moves which weight, and the learning rate over time."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.training.muon import Muon


class OptimizerConfig(ABC):
    """Builds the optimizers of a scorer; they share one schedule."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        """One or more optimizers that together hold every parameter once."""


@dataclass(frozen=True)
class AdamConfig(OptimizerConfig):
    """Adam for all weights, without weight decay (App. A.1)."""

    name: ClassVar[str] = "adam"
    lr: float = 1e-3  # App. A.1.1; 3.3e-4 for ImageNet

    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(scorer.parameters(), lr=self.lr, fused=True)]


@dataclass(frozen=True)
class MuonConfig(OptimizerConfig):
    """Muon for the convolutions before a batch norm; AdamW for head, biases and norms."""

    name: ClassVar[str] = "muon"
    lr: float = 0.03
    momentum: float = 0.9
    other_lr: float = 2e-3  # of AdamW
    weight_decay: float = 0.01  # of AdamW

    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        weights: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in scorer.named_parameters():
            # The head is no Muon weight: no batch norm follows it, so its norm matters.
            (weights if parameter.dim() == 4 and "head" not in name.split(".") else others).append(parameter)
        adam = torch.optim.AdamW(others, lr=self.other_lr, weight_decay=self.weight_decay, fused=True)
        return [Muon(weights, lr=self.lr, momentum=self.momentum), adam]


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {kind.name: kind for kind in (AdamConfig, MuonConfig)}


@dataclass(frozen=True)
class ScheduleConfig:
    """How long to train, and the learning rate on the way: a linear warm-up, then down to 0."""

    shape: str = "cosine"  # or "linear"
    epochs: float = 350  # App. A.1.1
    warmup_epochs: float = 10  # keeps its share of the run when `--minutes` changes the number of epochs

    def __post_init__(self) -> None:
        if self.shape not in ("cosine", "linear"):
            raise UsageError(f"expected schedule.shape cosine or linear, got '{self.shape}'")
        if not 0 <= self.warmup_epochs < self.epochs:
            raise UsageError(
                f"expected schedule.warmup_epochs in 0..{self.epochs} (schedule.epochs), got {self.warmup_epochs}"
            )

    def factor(self, step: int, steps: int) -> float:
        """The share of the full learning rate for `step` in 0..steps-1; never 0, the last step still learns."""
        warmup = steps * self.warmup_epochs / self.epochs
        if step + 1 < warmup:
            return (step + 1) / warmup
        left = (steps - step) / max(1.0, steps - warmup + 1)  # 1 where warm-up ends, towards 0
        left = min(1.0, left)
        return left if self.shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)


def set_rates(optimizers: list[torch.optim.Optimizer], factor: float) -> None:
    """Set every learning rate to that share of the one it was built with."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = factor * group.setdefault("initial_lr", group["lr"])
