"""`python -m studies figures`: the paper's figures from stored rows and shipped models."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.rows.prover import one_thread
from studies.common.commands import choose
from studies.common.results import RESULTS
from studies.figures.catalog import FIGURES, write_figures
from studies.figures.stored_results import Stock


def figures(
    out: Annotated[Path, typer.Option(help="the folder to write SVG and PNG files to")] = Path("figures"),
    only: Annotated[list[str] | None, typer.Option(metavar="NAME", help=f"one of {', '.join(FIGURES)}")] = None,
    rows: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept, for the attack")] = None,
) -> None:
    """Rebuild the paper's figures on the CPU; one whose rows are missing says how to make them."""
    chosen = choose("figure", only, FIGURES)
    with one_thread():
        for name, drawn in write_figures(chosen, Stock(rows, data_dir), out):
            typer.echo(f"{name}: {'not drawn' if drawn.picture is None else out / f'{name}.svg'}")
            for note in drawn.notes:
                typer.echo(f"  {note}")
