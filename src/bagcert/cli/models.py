"""`bagcert models`: the models that come with the package, and what each one proves."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from bagcert.cli.output import show_card
from bagcert.stored_models import card, shipped_models


def models(
    name: Annotated[str | None, typer.Argument(help="model whose card to show")] = None,
) -> None:
    if name is not None:
        show_card(name, card(name))
        return
    table = Table("model", "rule", "patch", "clean %", "certified %", "recipe command")
    for each in shipped_models():
        facts = card(each)
        own = next(row for row in facts["test"] if (row["patch"], row["rule"]) == (facts["patch"], facts["rule"]))
        shares = (f"{100 * own[key]:.2f}" for key in ("clean", "certified"))
        table.add_row(each, facts["rule"], facts["patch"], *shares, facts["command"])
    Console().print(table)
