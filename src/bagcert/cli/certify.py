"""`bagcert certify`: for each image of a split, is its class proven safe from any such patch?"""

import hashlib
import json
import shlex
import sys
import time
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from bagcert.audit import Program
from bagcert.data import Source
from bagcert.defense import Defense, card, load
from bagcert.distributed import joined_world
from bagcert.errors import UsageError
from bagcert.program import device_name, versions
from bagcert.rows.format import Evaluation, Rows, read_rows, summary
from bagcert.rows.header import describe, fitting_dataset
from bagcert.rows.write import Plan, write_rows


def certify(
    model: Annotated[str, typer.Argument(help="a shipped model, or a folder written by `bagcert train`")],
    data: Annotated[str | None, typer.Option(help="data set or folder; default: what the model was trained on")] = None,
    split: Annotated[str, typer.Option(help="train, validation, train+validation or test")] = "test",
    patch: Annotated[
        list[str] | None, typer.Option(metavar="HxW", help="5x5, 2.4%, 5x5+2x12 or area:24; each on its own")
    ] = None,
    rule: Annotated[list[str] | None, typer.Option(help="each with every patch; default: the model's")] = None,
    limit: Annotated[int | None, typer.Option(help="only the first images of the split", min=1)] = None,
    scores: Annotated[bool, typer.Option("--scores", help="keep scores and weakest places beside the rows")] = False,
    out: Annotated[Path | None, typer.Option(help="the rows, one JSON line per image; continued if there")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda or cuda:N; default: the GPU if there is one")] = None,
) -> None:
    """Prove for each image that no patch changes its class; rows of an interrupted call are continued."""
    begun = time.monotonic()
    defense, facts = load(model), card(model)
    dataset = fitting_dataset(data or facts["data"]["name"], defense, data_dir)
    source = dataset.split(split)
    evaluations = wanted(patch or [facts["patch"]], rule or [facts["rule"]])
    plan = Plan(evaluations, min(limit or len(source), len(source)), scores)
    with joined_world() as world:
        place = find_device(device, world.device)
        defense.scorer.to(place)
        header = describe(model, facts, defense, dataset, split, means(defense, place))
        path = checked(out) if out is not None else usual_path(header, plan)
        run(path, defense, plan, source, header, quiet=world.rank > 0)
        if not world.leads:
            return
    rows = read_rows(path)
    seconds = time.monotonic() - begun
    if as_json:
        typer.echo(json.dumps(to_object(rows, seconds)))
    else:
        show(rows, defense, seconds)


def means(defense: Defense, place: torch.device, dtype: str = Program.dtype) -> dict[str, object]:
    """By what scores are computed: versions, device, and the arithmetic that `bagcert audit` tries for that type."""
    own = defense.scorer.own_type  # computed as float32 is, whatever the caller's type
    program = Program(device=place.type, dtype=Program.dtype if own else dtype, batch=defense.batch_size)
    arithmetic = str(program).replace(program.dtype, own or dtype)
    return {"versions": versions(), "device": device_name(place), "arithmetic": arithmetic}


def run(path: Path, defense: Defense, plan: Plan, source: Source, header: dict[str, object], quiet: bool) -> None:
    """Certify under a progress bar; Ctrl-C keeps the rows and says how to go on."""
    columns = ("certifying", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True, quiet=quiet), transient=True) as progress:
            task = progress.add_task("", total=plan.images)
            write_rows(path, defense, plan, source, header, lambda images: progress.advance(task, images))
    except KeyboardInterrupt:
        if not quiet:
            typer.echo(
                f"stopped; the rows so far are in {path}; to go on: bagcert {shlex.join(sys.argv[1:])}", err=True
            )
        raise typer.Exit(130) from None


def wanted(patches: list[str], rules: list[str]) -> list[Evaluation]:
    """Every rule with every patch, each once."""
    return list(dict.fromkeys(Evaluation(patch.strip(), rule.strip()) for patch in patches for rule in rules))


def find_device(asked: str | None, usual: torch.device) -> torch.device:
    try:
        device = usual if asked is None else torch.device(asked)
    except RuntimeError as error:
        raise UsageError(f"expected a device like cpu or cuda:0, got '{asked}'; leave out --device") from error
    missing = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if device.type not in ("cpu", "cuda") or missing:
        raise UsageError(f"expected a device of this machine, got '{asked}'; leave out --device")
    return device


def checked(out: Path) -> Path:
    if out.suffix != ".jsonl":
        raise UsageError(f"expected --out to end in .jsonl, got {out}; `bagcert report` writes pages")
    return out


def usual_path(header: dict[str, object], plan: Plan) -> Path:
    """A name of its own for each question, so that the same command continues and another one does not collide."""
    question = json.dumps([header, plan.images, plan.scores, [str(entry) for entry in plan.evaluations]])
    name = Path(str(header["model"])).name
    return Path("rows") / f"{name}-{header['split']}-{hashlib.sha256(question.encode()).hexdigest()[:8]}.jsonl"


def to_object(rows: Rows, seconds: float) -> dict[str, object]:
    """What `--json` prints; accuracies are fractions, intervals 95 % (Wilson)."""
    results = summary(rows)
    return {
        "model": rows.model,
        "data": rows.header["data"]["name"],
        "images": len(rows.labels),
        "clean_accuracy": results[0]["clean_accuracy"],
        "results": results,
        "seconds": round(seconds, 2),
        "device": rows.header["device"],
        "arithmetic": rows.header["arithmetic"],
    }


def show(rows: Rows, defense: Defense, seconds: float) -> None:
    """A table in percent."""
    table = Table("patch", "rule", "clean %", "certified %", "95 %", "answered %")
    for entry, result in zip(rows.results, summary(rows), strict=True):
        low, high = result["interval"]
        shares = [f"{100 * result[key]:.2f}" for key in ("clean_accuracy", "certified_accuracy")]
        threat = defense.against(entry.patch, entry.rule).threat
        answered = rows.accuracies(entry).answered
        table.add_row(
            threat.describe(), entry.rule, *shares, f"{100 * low:.1f}–{100 * high:.1f}", f"{100 * answered:.2f}"
        )
    console = Console(soft_wrap=True, highlight=False, width=max(100, get_terminal_size().columns))
    console.print(table)
    console.print(f"scores by {rows.header['arithmetic']}")
    console.print(f"{len(rows.labels)} images of {rows.header['data']['name']} in {seconds:.0f} s; rows: {rows.path}")
