"""The mutants known to change nothing, as `equivalent.md` lists them."""

import re
from collections import Counter
from pathlib import Path

LIST = Path(__file__).with_name("equivalent.md")
ENTRY = re.compile(r"- (?P<place>[\w.]+): `(?P<change>.*)`")
Key = tuple[str, str]  # the place of a mutant and what it changes


class Ordinals:
    """Tells equal changes of one place apart: the second one, in the order of the file, ends with `#2`, and so on."""

    def __init__(self) -> None:
        self.counts: Counter[Key] = Counter()

    def __call__(self, place: str, change: str) -> Key:
        self.counts[place, change] += 1
        number = self.counts[place, change]
        return place, change if number == 1 else f"{change} #{number}"


def read_list() -> set[Key]:
    """Every entry of the list."""
    entries = [match for line in LIST.read_text("utf-8").splitlines() if (match := ENTRY.fullmatch(line))]
    return {(entry["place"], entry["change"]) for entry in entries}
