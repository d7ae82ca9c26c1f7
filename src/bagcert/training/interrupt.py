"""Ctrl-C and SIGTERM as a polite request: finish the step, save, say how to go on."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from bagcert.training.world import World


class Stopped(Exception):
    """Training was asked to stop; a checkpoint holds its state."""


class StopRequest:
    """Whether a signal came."""

    def __init__(self) -> None:
        self.asked = False

    def agreed(self, world: World) -> bool:
        """Whether any process was asked; all processes must call this at the same step."""
        if world.size == 1:
            return self.asked
        return bool(world.sum(torch.tensor(int(self.asked), device=world.device)))


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Turn the first SIGINT or SIGTERM into a request; the second one ends the process as usual."""
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
