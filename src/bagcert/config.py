"""TOML or JSON tables to frozen dataclasses and back. Unknown keys and wrong values are errors that name them.

Each field is annotated with a `Key`, which says what it means and which numbers it takes.
"""

import dataclasses
import math
import tomllib
import types
import typing
from collections.abc import Container, Mapping
from typing import Any, TypeVar

from bagcert.errors import UsageError, unknown_name

Config = TypeVar("Config")
DERIVED = {"derived": True}  # metadata of a field that follows from others, and is no key


@dataclasses.dataclass(frozen=True)
class Key:
    """What a key of a table means, and between which numbers its value must lie."""

    meaning: str = ""
    least: float = -math.inf
    most: float = math.inf

    def check(self, value: object, where: str) -> None:
        """Refuse a number, or a list with a number, that is out of range."""
        if isinstance(value, tuple) and any(isinstance(each, tuple) for each in value):
            for index, each in enumerate(value):
                self.check(each, f"{where}[{index}]")
            return
        numbers = [each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, int | float)]
        if not all(self.least <= number <= self.most for number in numbers):
            shown = list(value) if isinstance(value, tuple) else value
            room = f"be at most {self.most:,}" if self.least == -math.inf else f"lie in {self.least:,}..{self.most:,}"
            raise UsageError(f"The value of {where} must {room}, but is {shown}.")


def read_config(kind: type[Config], table: object, where: str) -> Config:
    """Build a dataclass from a table; missing keys get their defaults."""
    if not isinstance(table, Mapping):
        raise UsageError(f"The value of {where} must be a table, but is {table!r}.")
    hints, known = typing.get_type_hints(kind), keys(kind)
    values = {}
    for name, found in table.items():
        if name not in known:
            raise unknown_name(f"{where} key", str(name), known)
        values[name] = _value(hints[name], found, f"{where}.{name}")
        known[name].check(values[name], f"{where}.{name}")
    return kind(**values)


def read_choice(kinds: Mapping[str, type[Config]], table: object, where: str) -> Config:
    """Build the dataclass that the table's `name` chooses."""
    if not isinstance(table, Mapping):
        raise UsageError(f"The value of {where} must be a table, but is {table!r}.")
    name = table.get("name", "")
    if not isinstance(name, str) or name not in kinds:
        raise unknown_name(where, str(name), kinds)
    return read_config(kinds[name], {key: value for key, value in table.items() if key != "name"}, where)


def write_config(config: Any) -> dict[str, Any]:
    """The table of a dataclass: the inverse of `read_config` and `read_choice`. Tuples become lists."""
    table: dict[str, Any] = {"name": config.name} if "name" in typing.get_type_hints(type(config)) else {}
    for key in keys(type(config)):
        table[key] = _plain(getattr(config, key))
    return table


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def keys(kind: type[Any]) -> dict[str, Key]:
    """The fields of a dataclass that a table may set."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = [field.name for field in dataclasses.fields(kind) if not field.metadata.get("derived")]
    notes = {name: getattr(hints[name], "__metadata__", ()) for name in names}
    return {name: next((note for note in found if isinstance(note, Key)), Key()) for name, found in notes.items()}


def _value(hint: Any, value: object, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _value(args[1] if isinstance(value, (list, tuple)) else args[0], value, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        if args[-1] is not Ellipsis and len(value) != len(args):
            raise UsageError(f"The value of {where} must have {len(args)} numbers, but has {len(value)}.")
        return tuple(_value(args[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is float and not math.isfinite(value):
        raise UsageError(f"The value of {where} must be a finite number, but is {value}.")
    if type(value) is hint:
        return value
    name = "list" if origin is tuple else hint.__name__
    raise UsageError(f"The value of {where} must be {_ARTICLES.get(name, name)}, but is {value!r}.")


_ARTICLES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a string",
    "list": "a list",
}


def apply_override(table: dict[str, Any], text: str, choices: Container[str]) -> None:
    """Set one value of a nested table in place: `section.key=value`. A value that is not TOML is taken as a string.

    In the sections of `choices`, the name picks the dataclass: a new name drops the keys of the old one.
    """
    path, equals, raw = text.partition("=")
    section, dot, key = path.strip().partition(".")
    if not (equals and dot and section and key):
        raise UsageError(f"The option --set takes SECTION.KEY=VALUE, not '{text}'.")
    try:
        value = tomllib.loads(f"value = {raw}")["value"]
    except RecursionError:
        raise UsageError(f"The value of {path.strip()} is nested too deeply. Give a plain value or a list.") from None
    except tomllib.TOMLDecodeError:
        value = raw.strip()  # heaviside instead of "heaviside", since shells drop the quotes
    inner = table.setdefault(section, {})
    if not isinstance(inner, dict):
        raise UsageError(f"The option --set takes SECTION.KEY=VALUE, not '{text}': '{section}' is not a section.")
    if section in choices and key == "name" and inner.get("name") != value:
        inner.clear()
    inner[key] = value


def write_toml(table: Mapping[str, Any]) -> str:
    """A recipe's table as TOML: plain values and sections of plain values."""
    lines = [f"{key} = {_toml(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    for section, inner in table.items():
        if isinstance(inner, Mapping):
            lines += ["", f"[{section}]", *(f"{key} = {_toml(value)}" for key, value in inner.items())]
    return "\n".join(lines).lstrip("\n") + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return repr(value)
