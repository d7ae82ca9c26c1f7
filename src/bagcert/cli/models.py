"""`bagcert models`: the models that come with the package, what each one proves, and what it costs."""

from shutil import get_terminal_size
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bagcert.cli.output import show_card
from bagcert.errors import unknown_name
from bagcert.stored_models import card
from bagcert.zoo import (
    COST_HEADS,
    KEYS,
    PATCHES,
    PROGRAM_HEADS,
    PROOF_HEADS,
    by_key,
    cost_cells,
    program_cells,
    proof_cells,
    zoo,
)


def models(
    name: Annotated[str | None, typer.Argument(help="model or run folder whose card to show")] = None,
    sort: Annotated[str, typer.Option(metavar="KEY", help=f"order of the list: {', '.join(KEYS)}")] = "name",
) -> None:
    if name is not None:
        show_card(name, card(name))
        return
    if sort not in KEYS:
        raise unknown_name("order", sort, KEYS)
    found = by_key(zoo(), sort)
    console = Console(soft_wrap=True, highlight=False, width=max(104, get_terminal_size().columns))
    programs = [row for each in found for row in program_cells(each)]
    for heads, rows in (
        (PROOF_HEADS, [proof_cells(each) for each in found]),
        (COST_HEADS, [cost_cells(each) for each in found]),
        (PROGRAM_HEADS, programs),
    ):
        table = Table(*heads)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    rules = ", ".join(dict.fromkeys(each.rule for each in found))
    console.print(
        f"{PATCHES[0]} to {PATCHES[-1]}: certified % of the test set against such a patch, by recovery ({rules}: the "
        "class is proven) / by detection (detect: the class, or an alert). A dash: not measured."
    )
    for kind in ("cpu", "gpu"):
        speeds = [speed for each in found if (speed := getattr(each, kind)) is not None]
        for command, device in dict.fromkeys((speed.command, speed.device) for speed in speeds):
            console.print(f"{kind.upper()}: {device}, by {command}", markup=False)
    console.print("A model's card: bagcert models NAME")
