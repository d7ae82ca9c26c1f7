"""`bagcert report`: from rows to one page."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.report.inputs import read_inputs
from bagcert.report.page import build, write_report


def report(
    rows: Annotated[
        list[Path], typer.Argument(help="files written by `bagcert certify` and `bagcert attack`, of one data set")
    ],
    out: Annotated[Path, typer.Option(help="folder for the page, tables and figures")] = Path("report"),
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets, for the gallery")] = None,
) -> None:
    inputs = read_inputs(rows)
    typer.echo(f"wrote {write_report(build(inputs, data_dir), inputs, out)}")
