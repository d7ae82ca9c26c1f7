"""The running numbers of a training process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bagcert.training.world import World


class Meter:
    """Losses since the last look, and the pace since the start."""

    def __init__(self, step: int, steps: int, batch_size: int) -> None:
        self.losses: list[Tensor] = []  # on the device, not yet waited for
        self.steps, self.batch_size = steps, batch_size
        self._first, self._begun = step, time.monotonic()
        self._last = (step, self._begun)
        self._waited = 0.0

    def loss(self, world: World) -> float:
        """The mean loss since the last call, over all processes; waits for the device."""
        mean = world.sum(torch.stack(self.losses).mean()) / world.size
        self.losses.clear()
        return float(mean)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around what brings the next images."""
        begun = time.monotonic()
        yield
        self._waited += time.monotonic() - begun

    def waited(self) -> float:
        """The share of the time since the last `pace` that went by waiting for images.

        The device waits no longer than that: it may still have had earlier steps to do.
        """
        share = self._waited / max(time.monotonic() - self._last[1], 1e-9)
        self._waited = 0.0
        return min(1.0, share)

    def rest(self) -> None:
        """Leave the time since the last `pace` out of the next one: it went into something else than steps."""
        self._last = (self._last[0], time.monotonic())

    def pace(self, step: int) -> tuple[float, float]:
        """Images a second since the last call, and the seconds that are left at the mean pace."""
        now = time.monotonic()
        before, then = self._last
        self._last = (step, now)
        speed = (step - before) * self.batch_size / max(now - then, 1e-9)
        return speed, (now - self._begun) / (step - self._first) * (self.steps - step)
