"""`bagcert report`: rows in, one page out."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.report.inputs import read_inputs
from bagcert.report.page import build, write_report


def report(
    rows: Annotated[
        list[Path], typer.Argument(help="files of `bagcert certify` and `bagcert attack`, of one data set")
    ],
    out: Annotated[Path, typer.Option(help="the folder to write the page, tables and figures to")] = Path("report"),
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept, for the gallery")] = None,
) -> None:
    """Make a self-contained page of rows, with tables (Markdown, LaTeX) and figures (SVG, PNG) beside it."""
    inputs = read_inputs(rows)
    typer.echo(f"wrote {write_report(build(inputs, data_dir), inputs, out)}")
