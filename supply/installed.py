"""The packages that a package needs, by the metadata of those installed here."""

from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OURS = "bagcert"


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
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or left out on purpose, as the CUDA libraries of a CPU build
        for text in found[name].requires or ():
            asked = Requirement(text)
            if asked.marker is None or asked.marker.evaluate({"extra": extra}):
                waiting += [(canonicalize_name(asked.name), each) for each in ("", *asked.extras)]
    return {name: found[name] for name in sorted(found) if name != OURS}
