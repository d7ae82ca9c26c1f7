"""The paper's sweep and its score functions, trained short: the rows behind `bagcert figures`, into results/.

    python -m benchmarks.sweep                           (all 35 runs, on a GPU)
    python -m benchmarks.sweep --minutes 9 --runs 'rf*'  (what fits; the same command goes on)
    python -m benchmarks.sweep --tiny --runs rf7-m0.50 --runs sigmoid-0 --out /tmp/results  (a rehearsal on a CPU)

20 networks (receptive field 5 to 13, margin 0.25 to 1.0) of width 192 and 12 epochs instead of 768 and 350: certified
on all test images and attacked on the first 1,000. 15 runs of three score functions, of which only the accuracies
over training are kept. Some processes share the GPU, and each takes run after run: to import and compile for every
run anew would cost as much as its training. Not measured yet: at the 22,000 images/s that four runs of width 256
reached together on one H200, width 256 would take about 25 minutes in all, and this about 16.
"""

import multiprocessing
import time
from multiprocessing.context import SpawnProcess
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.errors import UsageError
from bagcert.evaluation.figures.plan import RESULTS
from bagcert.training.interrupt import Stopped
from benchmarks.calling import call
from benchmarks.sweep_runs import FULL, TINY, Bench, SweepRun, carry_out, is_done, matching

STOPPING_SECONDS = 30.0  # for the last checkpoints


def main(
    runs: Annotated[list[str] | None, typer.Option(metavar="NAME", help="such as rf7-m0.50 or 'sigmoid-*'")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    processes: Annotated[int, typer.Option(help="runs that share the device", min=1)] = 5,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/sweep"),
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train, certify and attack the models of the paper's figures."""
    if tiny and out == RESULTS:
        raise UsageError(f"expected another --out than {RESULTS} with --tiny, got it; rehearsed rows are no results")
    chosen = matching(runs or ["*"])
    bench = Bench(TINY if tiny else FULL, out, work / "tiny" if tiny else work, data_dir)
    todo = [run for run in chosen if not is_done(run, out)]
    deadline = time.monotonic() + 60 * minutes if minutes is not None else float("inf")
    supervise(todo, bench, min(processes, len(todo)), deadline)
    left = sum(not is_done(run, out) for run in chosen)
    typer.echo(f"{len(chosen) - left} of {len(chosen)} runs done{'; the same command goes on' if left else ''}")
    if left:
        raise typer.Exit(1)


def supervise(todo: list[SweepRun], bench: Bench, processes: int, deadline: float) -> None:
    """Let some processes work the runs off until the deadline; what they are at then is kept."""
    context = multiprocessing.get_context("spawn")
    queue: Queue[SweepRun | None] = context.Queue()
    for run in [*todo, *[None] * processes]:
        queue.put(run)
    workers = [context.Process(target=work_off, args=(queue, bench)) for _ in range(processes)]
    try:
        for worker in workers:
            worker.start()
        wait_for(workers, deadline)
    finally:
        for worker in workers:
            worker.terminate()  # training saves a checkpoint; rows are on disk batch by batch
        wait_for(workers, time.monotonic() + STOPPING_SECONDS)
        for worker in workers:
            worker.kill()  # one that is still compiling has nothing to lose


def wait_for(workers: list[SpawnProcess], deadline: float) -> None:
    for worker in workers:
        worker.join(None if deadline == float("inf") else max(0.0, deadline - time.monotonic()))


def work_off(queue: "Queue[SweepRun | None]", bench: Bench) -> None:
    """Take runs until there are none; one that fails does not stop the others."""
    while (run := queue.get()) is not None:
        begun = time.monotonic()
        try:
            words = carry_out(run, bench)
        except Stopped:
            return
        except (UsageError, RuntimeError) as error:  # also what the device says when its memory is full
            words = f"failed: {error}"
        print(f"{run.name}: {words} ({time.monotonic() - begun:.0f} s)", flush=True)
        torch.compiler.reset()  # else the ninth network of a process would no longer be compiled


if __name__ == "__main__":
    call(main)
