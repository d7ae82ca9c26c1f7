"""Muon for convolutions: momentum whose update is the nearest orthogonal matrix."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Orthogonalized Nesterov momentum for convolution weights, each seen as a matrix [out, in·kernel²].

    Why not torch.optim.Muon: it takes 2D weights only, and it does not rescale the weight. Here each weight is set to
    norm √out before each step; batch norm makes the network blind to that norm, and a fixed one makes the learning rate
    the angle of a step (cifar10-airbench does the same).
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


def orthogonalize(matrices: Tensor, steps: int = 5) -> Tensor:
    """Move all singular values of the matrices [n rows columns] close to 1, by a quintic Newton-Schulz iteration.

    Its coefficients reach about [0.7, 1.2] fast instead of 1 exactly. In bf16 on a GPU: the iteration heals its own
    rounding.
    """
    work = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = work.shape[1] > work.shape[2]
    work = work.mT if tall else work
    work = work / (work.norm(dim=(1, 2), keepdim=True) + 1e-7)  # singular values at most 1
    for _ in range(steps):
        gram = work @ work.mT
        work = 3.4445 * work + (-4.7750 * gram + 2.0315 * gram @ gram) @ work
    result: Tensor = work.mT if tall else work
    return result.to(matrices.dtype)
