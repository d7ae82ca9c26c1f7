"""`bagcert ship`: a finished run in, a model folder with card and rows out."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from bagcert.cli.certify import find_device, means
from bagcert.cli.models import print_card
from bagcert.data import load_dataset
from bagcert.rows.shipping import ship as ship_run
from bagcert.scorers.weights import load_scorer


def ship(
    run: Annotated[Path, typer.Argument(help="a folder written by `bagcert train`")],
    out: Annotated[Path, typer.Option(help="the model folder to write")],
    command: Annotated[str, typer.Option(help="the command that trained the run, for the card")],
    beside: Annotated[int, typer.Option(help="how many other runs shared the device in training", min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N: where the test set is certified")] = "cpu",
) -> None:
    """Store a run with weights of 8 bits and certify the whole test set for its card, in float32."""
    place = find_device(device, torch.device("cpu"))
    _, card = load_scorer(run)
    dataset = load_dataset(card["data"]["name"], data_dir)
    columns = ("certifying", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(dataset.split("test")))
        facts = {"command": command, "beside": beside}
        done = ship_run(run, out, dataset, place, means, facts, lambda images: progress.advance(task, images))
    print_card(out.name, done)
