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
        mean, variance = self._statistics(values.detach())
        self._track(mean, variance, values.numel() // values.shape[1] * self.world.size)
        arguments = (values, self.weight, self.bias, mean, variance, self.eps, self.world.size)
        normalized: Tensor = _Normalize.apply(*arguments)  # type: ignore[no-untyped-call]
        return normalized.to(features.dtype)

    def _statistics(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance over all processes, by one sum: each process fills its own row of a table."""
        table = values.new_zeros(self.world.size, 2, values.shape[1])
        table[self.world.rank] = torch.stack(local_statistics(values))
        dist.all_reduce(table)
        means, variances = table.unbind(dim=1)
        mean = means.mean(dim=0)
        return mean, variances.mean(dim=0) + (means - mean).square().mean(dim=0)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor, count: int) -> None:
        self.running_mean.lerp_(mean, self.momentum)
        self.running_var.lerp_(variance * (count / (count - 1)), self.momentum)
        self.num_batches_tracked += 1


def local_statistics(values: Tensor, compiled: bool | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel on this process; `compiled` is for tests, by default what runs on a GPU.

    A compiler fuses plain sums. Without one, those of torch's own batch norm are several times as fast.
    """
    if values.is_cuda if compiled is None else compiled:
        variance, mean = torch.var_mean(values, dim=(0, 2, 3), correction=0)
        return mean, variance
    mean, variance = torch.batch_norm_update_stats(values, None, None, 0.0)
    return mean, variance


class _Normalize(torch.autograd.Function):
    """Batch norm with given statistics of all processes, which depend on the values of each of them.

    With h = (x - mean) / deviation and the sums G of g and H of g h over all N values of a channel, the gradient is
    weight / deviation * (g - G / N - h H / N). The part with g alone, and the sums of this process, are those of
    a batch norm whose statistics are fixed; the rest is linear in x.
    """

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor, eps: float, size: int
    ) -> Tensor:
        ctx.save_for_backward(values, weight, mean, variance)
        ctx.eps, ctx.size = eps, size
        return F.batch_norm(values, mean, variance, weight, bias, training=False, eps=eps)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, weight, mean, variance = ctx.saved_tensors
        fixed, ours_h, ours = torch.ops.aten.native_batch_norm_backward(
            grads[0], values, weight, mean, variance, None, None, False, ctx.eps, [True, True, True]
        )
        total_h, total = sums = torch.stack([ours_h, ours])
        dist.all_reduce(sums)
        scale = (variance + ctx.eps).rsqrt()
        count = values.numel() // values.shape[1] * ctx.size
        slope = weight * scale.square() * total_h / count
        height = weight * scale * total / count - slope * mean
        fixed.addcmul_(values, slope[:, None, None], value=-1).sub_(height[:, None, None])
        return fixed, ours_h, ours, None, None, None, None
