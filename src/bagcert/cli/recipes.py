"""`bagcert recipes`: what can be trained, and what every key of a recipe means."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bagcert.training.recipe import CHOICES, SECTIONS, load_recipe, recipe_names
from bagcert.training.recipe_keys import explain, headline, kind_name, kinds_of, markdown


def recipes(
    name: Annotated[str | None, typer.Argument(help="recipe whose keys to show, or TOML file")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="write the page docs/recipes.md")] = False,
) -> None:
    if as_markdown:
        typer.echo(markdown(), nl=False)
    elif name is None:
        shown = Table("recipe", "what it trains")
        for each in recipe_names():
            shown.add_row(each, headline(each))
        Console().print(shown)
    else:
        show_keys(name)


def show_keys(name: str) -> None:
    """Every key of a recipe with its value, its default and its meaning."""
    recipe = load_recipe(name)
    shown = Table("key", "value", "default", "meaning", title=headline(name), title_justify="left")
    for section in SECTIONS:
        config = getattr(recipe, section)
        if section in CHOICES:
            shown.add_row(f"{section}.name", f'"{kind_name(section, config)}"', "", f"or {others(section, config)}")
        for row in explain(config):
            value = Text(row.value, style="" if row.value == row.default else "bold")
            shown.add_row(f"{section}.{row.key}", value, Text(row.default), row.meaning)
        shown.add_section()
    Console().print(shown)


def others(section: str, config: object) -> str:
    return ", ".join(name for name in kinds_of(section) if name != kind_name(section, config))
