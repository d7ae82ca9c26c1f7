"""`bagcert ship`: a finished run in, a model folder with card and rows out."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.cli.output import counted, show_card
from bagcert.data import load_dataset
from bagcert.defense import card
from bagcert.program import find_device
from bagcert.rows.shipping import ship as ship_run


def ship(
    run: Annotated[Path, typer.Argument(help="a folder written by `bagcert train`")],
    out: Annotated[Path, typer.Option(help="the model folder to write")],
    command: Annotated[str, typer.Option(help="the command that trained the run, for the card")],
    beside: Annotated[int, typer.Option(help="how many other runs shared the device in training", min=0)] = 0,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N: where the test set is certified")] = "cpu",
) -> None:
    """Store a run with weights of 8 bits and certify the whole test set for its card, in float32."""
    place = find_device(device)
    dataset = load_dataset(card(run)["data"]["name"], data_dir)
    with counted("certifying", len(dataset.split("test"))) as after_batch:
        facts = {"command": command, "beside": beside}
        done = ship_run(run, out, dataset, place, facts, after_batch)
    show_card(out.name, done)
