"""`python -m studies rivals compare`: compare our models with their rivals, from stored rows."""

import json
from pathlib import Path
from typing import Annotated

import typer

from studies.common.results import RESULTS
from studies.common.tables import markdown
from studies.rivals.pages import write_page
from studies.rivals.plan import COMMAND
from studies.rivals.results import standings, to_objects
from studies.rivals.tables import TABLES


def compare(
    results: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    out: Annotated[Path | None, typer.Option(help="the folder of comparison.md and its figure; else print")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON object")] = False,
) -> None:
    """Compare accuracies and costs with those of rivals and of their papers; needs no GPU and no model."""
    found = standings(results)
    written = [] if out is None else write_page(out, found)
    if as_json:
        typer.echo(json.dumps({"defenses": to_objects(found)}))
        return
    if out is None:
        for table in TABLES.values():
            typer.echo(markdown(table(found)))
    for path in written:
        typer.echo(f"wrote {path}")
    missing = [standing.name for standing in found if not standing.results]
    if missing:
        typer.echo(f"not run yet: {', '.join(missing)}; to run them: {COMMAND}", err=True)
