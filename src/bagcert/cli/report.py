"""`bagcert report`: from rows to one page."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.report.page import make_report


def report(
    rows: Annotated[
        list[Path], typer.Argument(help="files written by `bagcert certify` and `bagcert attack`, of one data set")
    ],
    out: Annotated[Path, typer.Option(help="folder for the page, tables and figures")] = Path("report"),
    data_dir: Annotated[Path | None, typer.Option(help="folder of the data sets, for the gallery")] = None,
) -> None:
    typer.echo(f"wrote {make_report(rows, data_dir, out)}")
