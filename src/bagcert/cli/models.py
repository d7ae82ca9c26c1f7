"""`bagcert models`: what comes with the package, and what each model was measured to prove."""

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from bagcert.defense import card, shipped_models


def models(
    name: Annotated[str | None, typer.Argument(help="show the whole card of this model")] = None,
) -> None:
    """List the shipped models, or show the card of one."""
    if name is not None:
        print_card(name, card(name))
        return
    table = Table("model", "rule", "patch", "clean %", "certified %", "recipe command")
    for each in shipped_models():
        facts = card(each)
        own = next(row for row in facts["test"] if (row["patch"], row["rule"]) == (facts["patch"], facts["rule"]))
        shares = (f"{100 * own[key]:.2f}" for key in ("clean", "certified"))
        table.add_row(each, facts["rule"], facts["patch"], *shares, facts["command"])
    Console().print(table)


def print_card(name: str, facts: dict[str, Any]) -> None:
    """One model: where it comes from, and its accuracies on the whole test set."""
    console = Console()
    console.print(f"[bold]{name}[/bold]: {facts['command']}")
    console.print(
        f"seed {facts['seed']}, {facts['seconds'] / 60:.1f} minutes on {facts['device']}, {facts['steps']} steps, "
        f"data {facts['data']['name']} {facts['data']['digest'][:12]}"
    )
    table = Table("patch", "rule", "clean %", "certified %", "answered %")
    for row in facts["test"]:
        shares = (f"{100 * row[key]:.2f}" for key in ("clean", "certified", "answered"))
        table.add_row(row["patch"], row["rule"], *shares)
    console.print(table)
