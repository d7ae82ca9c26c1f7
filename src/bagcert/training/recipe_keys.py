"""What every key of a recipe means, from the dataclasses that read it: for the command line and for docs/recipes.md."""

import inspect
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from bagcert.config import Key, keys, write_config
from bagcert.training.recipe import CHOICES, SECTIONS, Recipe, recipe_names, recipe_text

INTRODUCTION = (
    "A recipe decides all of a training. `bagcert train NAME --set SECTION.KEY=VALUE` changes one value of it.",
    "A TOML file of your own holds only what differs from another recipe, which it names in its first line:",
    '`base = "folder-32"`. `bagcert recipes NAME` shows all values of a recipe.',
    "This page is written by `bagcert recipes --markdown`.",
)


class KeyRow(NamedTuple):
    """One key of a recipe; values as TOML writes them."""

    key: str
    value: str
    default: str
    meaning: str


def headline(name: str) -> str:
    """The first line of a recipe's comment."""
    return recipe_text(name).splitlines()[0].removeprefix("# ")


def kinds_of(section: str) -> Mapping[str, type[Any]]:
    """The dataclasses of a section by their names; a section that has no choice has one, without a name."""
    return CHOICES.get(section) or {"": type(getattr(Recipe(), section))}


def kind_name(section: str, config: object) -> str:
    return next(name for name, kind in kinds_of(section).items() if type(config) is kind)


def explain(config: object) -> list[KeyRow]:
    """All keys of one section of a recipe."""
    values, defaults = write_config(config), write_config(type(config)())
    return [
        KeyRow(name, written(values[name]), written(defaults[name]), meaning_of(key))
        for name, key in keys(type(config)).items()
    ]


def meaning_of(key: Key) -> str:
    """The meaning, with the numbers that the key takes."""
    low, high = (f"{bound:,}" if math.isfinite(bound) else "" for bound in (key.least, key.most))
    room = f"{low} to {high}" if low else f"at most {high}"
    return f"{key.meaning} ({room})" if high else key.meaning


def written(value: object) -> str:
    return json.dumps(value)


def summary_of(kind: type[Any]) -> str:
    """The first sentence of a class's docstring."""
    return (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")


def markdown() -> str:
    """docs/recipes.md."""
    lines = [
        "# Recipes",
        "",
        *INTRODUCTION,
        "",
        *table(("recipe", "what it trains"), ((f"`{name}`", headline(name)) for name in recipe_names())),
    ]
    for section in SECTIONS:
        lines += ["", f"## [{section}]"]
        for name, kind in kinds_of(section).items():
            title = [f'### `name = "{name}"`', ""] if name else []
            rows = ((f"`{row.key}`", f"`{row.default}`", row.meaning) for row in explain(kind()))
            lines += ["", *title, summary_of(kind), "", *table(("key", "default", "meaning"), rows)]
    return "\n".join(lines) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    found = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}", *found] if found else ["No keys."]
