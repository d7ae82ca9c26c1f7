"""How many steps fit into a number of minutes, measured once before training."""

import time
from collections.abc import Callable

import torch

from bagcert.errors import UsageError
from bagcert.training.trainer import Trainer

WARMUP_STEPS = 10  # torch.compile and the choice of kernels happen here
TIMED_STEPS = 30
RESERVE = 0.03  # of the time left, for checkpoints and slower moments


def fit_steps(trainer: Trainer, evaluate: Callable[[], object], evaluations: int, deadline: float) -> int:
    """The number of steps that end before `deadline` (time.monotonic); the trainer is left as it was found."""
    before = {name: value.clone() for name, value in trainer.state().items()}
    batches = trainer.batches(0)
    for step in range(WARMUP_STEPS):
        trainer.step(step, WARMUP_STEPS + TIMED_STEPS, next(batches))
    step_seconds = _seconds(
        trainer,
        lambda: [
            trainer.step(step, WARMUP_STEPS + TIMED_STEPS, next(batches))
            for step in range(WARMUP_STEPS, WARMUP_STEPS + TIMED_STEPS)
        ],
    )
    step_seconds /= TIMED_STEPS
    evaluate()  # the first one chooses kernels
    evaluation_seconds = _seconds(trainer, evaluate)
    trainer.load_state(before)
    left = (deadline - time.monotonic()) * (1 - RESERVE) - evaluations * evaluation_seconds
    steps = int(trainer.world.share(left // step_seconds))
    if steps < 1:
        raise UsageError(
            f"expected --minutes for at least one step of {step_seconds:.2g} s, got a time that is over; allow more"
        )
    return steps


def _seconds(trainer: Trainer, work: Callable[[], object]) -> float:
    _wait(trainer.world.device)
    begun = time.monotonic()
    work()
    _wait(trainer.world.device)
    return time.monotonic() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
