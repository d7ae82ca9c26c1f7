"""The one error that a caller can cause, and help with misspelled names and missing packages."""

import difflib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec


class UsageError(ValueError):
    """A caller's mistake, told in one line: what is wrong, and what to do. The command line exits with 2.

    >>> import bagcert
    >>> try:
    ...     bagcert.load("cifar11")
    ... except bagcert.UsageError as error:
    ...     told, known = str(error).split(" Known: ")
    >>> told
    "Unknown model or run folder 'cifar11'. Did you mean 'cifar10'?"
    >>> known
    'cifar10, cifar10-distilled, cifar10-small, cifar10-votes.'
    """


def unknown_name(noun: str, name: str, known: Iterable[str]) -> UsageError:
    """An error that suggests the nearest known name and lists all of them. `noun` says what they name, as in "rule"."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    return UsageError(f"Unknown {noun} '{name}'.{hint} Known: {', '.join(names)}.")


def first_line(error: Exception) -> str:
    """Another library's error in one line: the first line of its message, or the error's name if it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def need_packages(what: str, packages: Mapping[str, str]) -> None:
    """Refuse in one line if a package is missing; import what needs it only after this call.

    `packages` maps the name of each module to the name under which pip installs it. The error names packages, not an
    extra of this one: the command then works from a wheel, a checkout and a plain source folder.
    """
    missing = [name for module, name in packages.items() if find_spec(module) is None]
    if missing:
        raise UsageError(f"{what} needs {', '.join(missing)}. Run: pip install {' '.join(missing)}")
