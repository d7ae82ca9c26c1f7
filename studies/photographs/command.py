"""The paper's networks for ImageNet, and ours, on 64x64 photographs of 100 classes: rows, curves, ranks.

    python -m studies photographs run FOLDER                            (all runs, 3 minutes each, on a GPU)
    python -m studies photographs run FOLDER --minutes 9 --processes 3  (what fits; the same command continues)
    python -m studies photographs run FOLDER --tiny --out /tmp/results  (a rehearsal on a CPU)

FOLDER holds train/CLASS/* and val/CLASS/*. Every run gets the same time beside the same number of other runs. Curves
over training come from the validation split. Then all images of val are certified against patches of 1, 2 and 3 percent
of the image, and the first 1,000 are attacked. Ranks say how often the label stays among the five best classes.
"""

from pathlib import Path
from typing import Annotated

import typer

from studies.common.commands import choose
from studies.common.results import RESULTS
from studies.common.sharing import check_rehearsal, deadline_of, report, supervise
from studies.photographs.runs import RUNS, Bench, carry_out


def run(
    photographs: Annotated[Path, typer.Argument(help="a folder with train/CLASS/* and val/CLASS/*")],
    runs: Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"of {', '.join(RUNS)}")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    each: Annotated[float, typer.Option(help="minutes of training for each run")] = 3.0,
    processes: Annotated[int, typer.Option(help="runs that share the device", min=1)] = 1,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/photographs"),
) -> None:
    """Train, certify, attack and rank the networks."""
    check_rehearsal(tiny, out)
    bench = Bench(photographs, out, work / "tiny" if tiny else work, each, tiny)
    chosen = choose("run", runs, RUNS)
    deadline = deadline_of(minutes)
    supervise(carry_out, [[name] for name in chosen if not bench.is_done(name)], bench, processes, deadline)
    left = [name for name in chosen if not bench.is_done(name)]
    report(len(chosen), left)
