"""The paper's sweep and its score functions in short runs: the rows behind `python -m studies figures`.

    python -m studies sweep                           (all 35 runs, on a GPU)
    python -m studies sweep --minutes 9 --runs 'rf*'  (what fits; the same command continues)
    python -m studies sweep --tiny --runs rf7-m0.50 --runs sigmoid-0 --out /tmp/results  (a rehearsal on a CPU)

20 networks (receptive field 5 to 13, margin 0.25 to 1.0) of width 192 and 12 epochs instead of 768 and 350: certified
on all test images and attacked on the first 1,000. 15 runs of three score functions, of which only the accuracies over
training are kept. Several processes share the GPU, and each does many runs, since importing and compiling for every run
would cost as much as its training.

One H200 needs about 20 minutes for everything if NVIDIA's multi-process service runs the processes side by side (start
it with `nvidia-cuda-mps-control -d`): seven processes did 20 runs in 8.7 minutes. Without it, five processes did 5.
"""

from pathlib import Path
from typing import Annotated

import typer

from studies.common.results import RESULTS
from studies.common.sharing import check_rehearsal, deadline_of, report, supervise
from studies.sweep.runs import FULL, TINY, Bench, carry_out, is_done, matching


def sweep(
    runs: Annotated[list[str] | None, typer.Option(metavar="NAME", help="such as rf7-m0.50 or 'sigmoid-*'")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    processes: Annotated[int, typer.Option(help="runs that share the device", min=1)] = 5,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/sweep"),
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train, certify and attack the models of the paper's figures."""
    check_rehearsal(tiny, out)
    chosen = matching(runs or ["*"])
    bench = Bench(TINY if tiny else FULL, out, work / "tiny" if tiny else work, data_dir)
    todo = [run for run in chosen if not is_done(run, out)]
    deadline = deadline_of(minutes)
    supervise(carry_out, todo, bench, processes, deadline)
    report(len(chosen), [run.name for run in chosen if not is_done(run, out)])
