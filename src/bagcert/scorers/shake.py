"""Shake-shake regularization: two residual paths, mixed by one random weight forward and another one backward."""

from typing import Any

import torch
from torch import Tensor


class _Shake(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, forth: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return forth * first + (1 - forth) * second

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return back * grads[0], (1 - back) * grads[0], None, None


def shake(first: Tensor, second: Tensor) -> Tensor:
    """α·first + (1-α)·second, with gradients as for another α; one draw of each for the whole batch (App. A.1.1)."""
    # Drawn on the CPU or GPU from its own generator; same dtype as the paths, so that bf16 stays bf16.
    weights = torch.rand(2, device=first.device, dtype=torch.float32).to(first.dtype)
    mixed: Tensor = _Shake.apply(first, second, weights[0], weights[1])  # type: ignore[no-untyped-call]
    return mixed
