"""The packages that our package needs: its own list, and the metadata of what is installed here."""

import tomllib
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "bagcert"
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def asked_by(name: str, extra: str, found: Distribution | None) -> list[str]:
    """What a package asks for; ours by its sources, for an editable install keeps its metadata when they change."""
    if found is None:
        return [*PROJECT["optional-dependencies"].get(extra, ())] if extra else [*PROJECT["dependencies"]]
    return found.requires or []


def needed(extras: Iterable[str]) -> dict[str, Distribution]:
    """Everything that our package needs with these extras, directly or not, by name; our own package is left out."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(OURS, extra) for extra in ("", *extras)]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            package = None if name == OURS else distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or left out on purpose, as the CUDA libraries of a CPU build
        if package is not None:
            found[name] = package
        for text in asked_by(name, extra, package):
            asked = Requirement(text)
            if asked.marker is None or asked.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(asked.name), each) for each in ("", *asked.extras)]
    return {name: found[name] for name in sorted(found)}
