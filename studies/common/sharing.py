"""Jobs that share a device: several processes work through them until a deadline, and unfinished work is kept.

On an NVIDIA GPU, start its multi-process service first (`nvidia-cuda-mps-control -d`). Without it the processes take
turns, and jobs of many small kernels, such as attacks, wait most of the time.
"""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from pathlib import Path
from typing import TypeVar

import torch
import typer

from bagcert.errors import UsageError
from bagcert.training.sync import Stopped
from studies.common.results import RESULTS

STOPPING_SECONDS = 30.0  # for the last checkpoints
Job = TypeVar("Job")
Bench = TypeVar("Bench")


def deadline_of(minutes: float | None) -> float:
    """When to stop (time.monotonic), `minutes` from now; never if none are given."""
    return time.monotonic() + 60 * minutes if minutes is not None else float("inf")


def check_rehearsal(tiny: bool, out: Path, results: Path = RESULTS) -> None:
    """Refuse to write a rehearsal into the folder of results."""
    if tiny and out == results:
        raise UsageError(
            f"With --tiny, --out must not be {results}: rehearsed rows are no results. Choose another --out."
        )


def report(chosen: int, left: list[str]) -> None:
    """Say how much is done; exit code 1 while something is left."""
    if not left:
        typer.echo(f"{chosen} of {chosen} done")
        return
    typer.echo(f"{chosen - len(left)} of {chosen} done; not yet: {', '.join(left)}; the same command goes on")
    raise typer.Exit(1)


def supervise(
    step: Callable[[Job, Bench], str], todo: list[Job], bench: Bench, processes: int, deadline: float
) -> None:
    """Let `processes` work through the jobs; `step` does one and returns a line to print."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[Job | None] = context.Queue()
    count = min(processes, len(todo))
    for job in [*todo, *[None] * count]:
        queue.put(job)
    workers = [context.Process(target=work_off, args=(step, queue, bench)) for _ in range(count)]
    try:
        for worker in workers:
            worker.start()
        wait_for(workers, deadline)
    finally:
        for worker in workers:
            worker.terminate()  # training saves a checkpoint; rows are on disk batch by batch
        wait_for(workers, time.monotonic() + STOPPING_SECONDS)
        for worker in workers:
            worker.kill()  # a process that is still compiling has nothing to lose


def name_of(job: object) -> str:
    """The name of a run, or all names of several runs in a row."""
    return ", ".join(job) if isinstance(job, list) else str(getattr(job, "name", job))


def wait_for(workers: list[SpawnProcess], deadline: float) -> None:
    for worker in workers:
        worker.join(None if deadline == float("inf") else max(0.0, deadline - time.monotonic()))


def work_off(step: Callable[[Job, Bench], str], queue: "Queue[Job | None]", bench: Bench) -> None:
    """Take jobs until none are left; a failed job does not stop the others."""
    while (job := queue.get()) is not None:
        begun = time.monotonic()
        try:
            words = step(job, bench)
        except Stopped:
            return
        except (UsageError, RuntimeError) as error:  # including a full device memory
            words = f"{name_of(job)}: failed: {error}"
        print(f"{words} ({time.monotonic() - begun:.0f} s)", flush=True)
        torch.compiler.reset()  # else the ninth network of a process would no longer be compiled
