"""Which optimizer updates which weight: Adam, Muon."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from bagcert.config import Key


class Muon(torch.optim.Optimizer):
    """Orthogonalized Nesterov momentum for convolution weights, each seen as a matrix [out, in·kernel²].

    Why not torch.optim.Muon: it takes only 2D weights, and it does not rescale them. Here each weight is set to norm
    √out before each step. Batch norm makes the network independent of that norm, and a fixed norm makes the learning
    rate the angle of a step (cifar10-airbench does the same).
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None
        for group in self.param_groups:
            # Weights of one shape are orthogonalized in one batched product.
            shapes: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for weight in group["params"]:
                if weight.grad is not None:
                    shapes[weight.shape].append(weight)
            for weights in shapes.values():
                self._step(weights, group["lr"], group["momentum"])

    def _step(self, weights: list[Tensor], lr: float, momentum: float) -> None:
        grads = [weight.grad for weight in weights if weight.grad is not None]
        buffers = [self._buffer(weight) for weight in weights]
        torch._foreach_mul_(buffers, momentum)
        torch._foreach_add_(buffers, grads)
        ahead = torch._foreach_add(grads, buffers, alpha=momentum)  # Nesterov
        updates = orthogonalize(torch.stack([update.flatten(1) for update in ahead]))
        norms = torch._foreach_norm(weights)
        torch._foreach_div_(weights, norms)
        torch._foreach_mul_(weights, weights[0].shape[0] ** 0.5)
        changes = [update.view(weight.shape) for update, weight in zip(updates.unbind(), weights, strict=True)]
        torch._foreach_add_(weights, changes, alpha=-lr)

    def _buffer(self, weight: Tensor) -> Tensor:
        state: dict[str, Any] = self.state[weight]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(weight)
        buffer: Tensor = state["momentum"]
        return buffer


def orthogonalize(matrices: Tensor) -> Tensor:
    """Move all singular values of matrices [n rows columns] close to 1, by five quintic Newton-Schulz iterations.

    Their coefficients reach about [0.7, 1.2] fast, rather than exactly 1. On a GPU they run in bf16: each corrects the
    rounding of those before.
    """
    work = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = work.shape[1] > work.shape[2]
    work = work.mT if tall else work
    work = work / (work.norm(dim=(1, 2), keepdim=True) + 1e-7)  # singular values at most 1
    for _ in range(5):
        gram = work @ work.mT
        work = 3.4445 * work + (-4.7750 * gram + 2.0315 * gram @ gram) @ work
    result: Tensor = work.mT if tall else work
    return result.to(matrices.dtype)


class OptimizerConfig(ABC):
    """Builds the optimizers of a scorer, which share one schedule."""

    name: ClassVar[str]

    @abstractmethod
    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        """One or more optimizers that together hold each parameter once."""


@dataclass(frozen=True)
class AdamConfig(OptimizerConfig):
    """Adam for all weights, without weight decay (App. A.1)."""

    name: ClassVar[str] = "adam"
    lr: Annotated[float, Key("learning rate", 0, 100)] = 1e-3  # App. A.1.1; 3.3e-4 for ImageNet

    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        return [torch.optim.Adam(scorer.parameters(), lr=self.lr, fused=True)]


@dataclass(frozen=True)
class MuonConfig(OptimizerConfig):
    """Muon for the convolutions before a batch norm; AdamW for head, biases and norms."""

    name: ClassVar[str] = "muon"
    lr: Annotated[float, Key("learning rate of the convolutions: the angle of a step", 0, 100)] = 0.03
    momentum: Annotated[float, Key("momentum of the convolutions", 0, 1)] = 0.9
    other_lr: Annotated[float, Key("learning rate of AdamW, for head, biases and norms", 0, 100)] = 2e-3
    weight_decay: Annotated[float, Key("weight decay of AdamW", 0, 100)] = 0.01

    def build(self, scorer: nn.Module) -> list[torch.optim.Optimizer]:
        weights: list[Tensor] = []
        others: list[Tensor] = []
        for name, parameter in scorer.named_parameters():
            # Muon does not take the head: no batch norm follows it, so its norm matters.
            (weights if parameter.dim() == 4 and "head" not in name.split(".") else others).append(parameter)
        adam = torch.optim.AdamW(others, lr=self.other_lr, weight_decay=self.weight_decay, fused=True)
        return [Muon(weights, lr=self.lr, momentum=self.momentum), adam]


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {kind.name: kind for kind in (AdamConfig, MuonConfig)}
