"""Every rival trained, certified, attacked and timed on one GPU: the rows behind `bagcert compare`.

    python -m benchmarks.rivals                              (all of them, the paper's own network last)
    python -m benchmarks.rivals --minutes 9 --runs 'ds-*'    (what fits; the same command goes on)
    python -m benchmarks.rivals --runs bagcert --paper-minutes 20
    python -m benchmarks.rivals --tiny --out /tmp/results    (a rehearsal on a CPU)

Each is trained by its recipe on all 50,000 training images, certified against five patches by the rules that apply, and
attacked on the first 1,000 test images by its own rule. Three are too slow for all of that, and `rivals_scale.EFFORTS`
says what they do instead; the rows and the tables name their images. Of the shipped models only costs are measured. One
after the other, for a time beside another run would say nothing. Not measured yet: about 28 minutes of one H200 are
planned, by counted arithmetic, and 8 more for the paper's own network.
"""

import multiprocessing
import time
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.errors import UsageError
from bagcert.evaluation.figures.plan import RESULTS
from bagcert.training.interrupt import Stopped
from benchmarks.calling import call
from benchmarks.rivals_runs import Bench, carry_out, is_done, matching
from benchmarks.rivals_scale import PLANNED, TINY
from benchmarks.sweep import STOPPING_SECONDS, wait_for


def main(
    runs: Annotated[list[str] | None, typer.Option(metavar="NAME", help="such as ibp or 'ds-*'")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    paper_minutes: Annotated[float, typer.Option(help="of training the paper's own network", min=0)] = 8.0,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/rivals"),
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train, certify, attack and time the rivals."""
    if tiny and out == RESULTS:
        raise UsageError(f"expected another --out than {RESULTS} with --tiny, got it; rehearsed rows are no results")
    chosen = matching(runs or ["*"])
    bench = Bench(TINY if tiny else PLANNED, out, work / "tiny" if tiny else work, data_dir, paper_minutes)
    todo = [name for name in chosen if not is_done(name, bench)]
    supervise(todo, bench, time.monotonic() + 60 * minutes if minutes is not None else float("inf"))
    left = [name for name in chosen if not is_done(name, bench)]
    typer.echo(f"{len(chosen) - len(left)} of {len(chosen)} done" + (f"; not yet: {', '.join(left)}" if left else ""))
    if left:
        typer.echo("the same command goes on")
        raise typer.Exit(1)


def supervise(todo: list[str], bench: Bench, deadline: float) -> None:
    """Let a process of its own work the runs off until the deadline; what it is at then is kept."""
    worker = multiprocessing.get_context("spawn").Process(target=work_off, args=(todo, bench))
    worker.start()
    try:
        wait_for([worker], deadline)
    finally:
        worker.terminate()  # training saves a checkpoint; rows are on disk batch by batch
        wait_for([worker], time.monotonic() + STOPPING_SECONDS)
        worker.kill()


def work_off(todo: list[str], bench: Bench) -> None:
    """One run after the other; one that fails does not stop the others."""
    for name in todo:
        begun = time.monotonic()
        try:
            words = carry_out(name, bench)
        except Stopped:
            return
        except (UsageError, RuntimeError) as error:  # also what the device says when its memory is full
            words = f"failed: {error}"
        print(f"{name}: {words} ({time.monotonic() - begun:.0f} s)", flush=True)
        torch.compiler.reset()  # else the ninth network of a process would no longer be compiled


if __name__ == "__main__":
    call(main)
