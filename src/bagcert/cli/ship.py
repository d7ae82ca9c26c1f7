"""`bagcert ship`: from a finished run to a model folder with card and rows."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.cli.output import counted, show_card
from bagcert.defense import load
from bagcert.program import find_device
from bagcert.rows.header import fitting_dataset
from bagcert.rows.shipping import ship as ship_run


def ship(
    run: Annotated[Path, typer.Argument(help="folder written by `bagcert train`")],
    out: Annotated[Path, typer.Option(help="model folder to write")],
    command: Annotated[str, typer.Option(help="command that trained the run, for the card")],
    beside: Annotated[int, typer.Option(help="number of other runs that shared the device in training", min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N, to certify the test set on")] = "cpu",
) -> None:
    dataset = fitting_dataset(None, load(run), data_dir)  # framed as in training
    with counted("certifying", len(dataset.split("test"))) as after_batch:
        facts = {"command": command, "beside": beside}
        done = ship_run(run, out, dataset, find_device(device), facts, after_batch)
    show_card(out.name, done)
