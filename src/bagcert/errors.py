"""The one error a caller can cause, and help for misspelt names."""

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """A caller's mistake, told in one line: "expected …, got …; do …". The command line exits with 2."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """An error that names the nearest known name and lists the others."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{near[0]}'?" if near else "choose one of these"
    return UsageError(f"expected {kind} in {', '.join(names)}, got '{name}'; {hint}")


def first_line(error: Exception) -> str:
    """What another library says, in one line: the first of its message, or the name of the error."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
