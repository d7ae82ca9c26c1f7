"""Train, certify, attack and time every rival on one GPU: the rows behind `python -m studies rivals compare`.

    python -m studies rivals run                              (all of them, one after the other)
    python -m studies rivals run --minutes 9 --processes 4    (what fits; the same command continues)
    python -m studies rivals run --runs bagcert --paper-minutes 20
    python -m studies rivals run --tiny --out /tmp/results    (a rehearsal on a CPU)

Each is trained by its recipe on all 50,000 training images, certified against five patches by the rules that apply, and
attacked on the first 1,000 test images by its own rule. Three are too slow for that; `scale.EFFORTS` says what they do
instead, and rows and tables name their numbers of images. The paper's own network, whose training is cut to minutes,
comes first. Several processes may share the GPU; the tables say beside how many others a network was trained. Costs are
then measured one after the other, since a time beside another run means nothing. For the shipped models, only costs are
measured.
"""

from pathlib import Path
from typing import Annotated

import typer

from studies.common.results import RESULTS
from studies.common.sharing import check_rehearsal, deadline_of, report, supervise
from studies.rivals.measure import measure
from studies.rivals.runs import Bench, is_done, is_prepared, jobs, matching, prepare
from studies.rivals.scale import PLANNED, TINY

Job = list[str]  # names, to be worked on one after the other


def run(
    runs: Annotated[list[str] | None, typer.Option(metavar="NAME", help="such as ibp or 'ds-*'")] = None,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    paper_minutes: Annotated[float, typer.Option(help="of training the paper's own network", min=0)] = 8.0,
    processes: Annotated[int, typer.Option(help="runs that share the device", min=1)] = 1,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="run folders and rows that are not complete")] = Path("runs/rivals"),
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train, certify, attack and time the rivals."""
    check_rehearsal(tiny, out)
    chosen = matching(runs or ["*"])
    bench = Bench(TINY if tiny else PLANNED, out, work / "tiny" if tiny else work, data_dir, paper_minutes, processes)
    deadline = deadline_of(minutes)
    supervise(prepare, jobs(chosen, bench), bench, processes, deadline)
    ready = [name for name in chosen if is_prepared(name, bench) and not is_done(name, bench)]
    supervise(measure_job, [[name] for name in ready], bench, 1, deadline)
    left = [name for name in chosen if not is_done(name, bench)]
    report(len(chosen), left)


def measure_job(job: Job, bench: Bench) -> str:
    return f"{job[0]}: {measure(job[0], bench)}"
