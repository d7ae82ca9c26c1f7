"""What keeps processes in step: a clean stop on Ctrl-C or SIGTERM, and shared batch-norm statistics."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.distributed import World


class Stopped(Exception):
    """Training was asked to stop. A checkpoint holds its state."""


class StopRequest:
    """Whether a signal has arrived."""

    def __init__(self) -> None:
        self.asked = False

    def agreed(self, world: World) -> bool:
        """Whether any process was asked to stop. All processes must call this at the same step."""
        if world.size == 1:
            return self.asked
        return bool(world.sum(torch.tensor(int(self.asked), device=world.device)))


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request. The second one ends the process as usual."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request  # Python delivers signals to the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def ask(number: int, frame: FrameType | None) -> None:
        request.asked = True
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def share_norms(module: nn.Module, world: World) -> None:
    """Replace every batch norm with one that shares its statistics. Weights keep their names."""
    for name, child in module.named_children():
        if isinstance(child, nn.BatchNorm2d):
            setattr(module, name, SharedBatchNorm(child, world))
        else:
            share_norms(child, world)


class SharedBatchNorm(nn.Module):
    """nn.BatchNorm2d over the batches of all processes together. Each must hold the same number of images.

    Why not torch's SyncBatchNorm: it needs a GPU, so our tests could not run it.
    """

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, norm: nn.BatchNorm2d, world: World) -> None:
        super().__init__()
        self.weight, self.bias = norm.weight, norm.bias
        for name, buffer in norm.named_buffers():
            self.register_buffer(name, buffer)
        assert norm.momentum is not None
        self.eps, self.momentum, self.world = norm.eps, norm.momentum, world

    def forward(self, features: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(
                features, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
        values = features.float()  # bf16 sums would be wrong in the third digit
        mean = self._mean(values)
        centered = values - mean[:, None, None]
        variance = self._mean(centered.square())
        self._track(mean.detach(), variance.detach(), values.numel() // values.shape[1] * self.world.size)
        scale = self.weight * (variance + self.eps).rsqrt()
        return (centered * scale[:, None, None] + self.bias[:, None, None]).to(features.dtype)

    def _mean(self, values: Tensor) -> Tensor:
        total: Tensor = _Sum.apply(values.mean(dim=(0, 2, 3)))  # type: ignore[no-untyped-call]
        return total / self.world.size

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        self.num_batches_tracked += 1


class _Sum(torch.autograd.Function):
    """The sum over all processes. Every process's loss depends on it, so gradients are summed as well."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        total = grads[0].contiguous()
        total = total.clone() if total is grads[0] else total
        dist.all_reduce(total)
        return total
