"""The mutants known to change nothing, as `equivalent.md` lists them."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).with_name("equivalent.md")
ENTRY = re.compile(r"- (?P<place>[\w.]+): `(?P<change>.*)`")


def normal(lines: Iterable[str]) -> str:
    """Changed lines as one: comments and layout do not count."""
    text = " ".join(re.sub(r"  # .*", "", line).strip() for line in lines)
    return re.sub(r"\s+", " ", text).replace("( ", "(").replace(" )", ")").strip()


class Ordinals:
    """Tells equal changes of one place apart: the second one, in the order of the file, ends with `#2`, and so on."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def __call__(self, place: str, change: str) -> tuple[str, str]:
        self.counts[place, change] += 1
        number = self.counts[place, change]
        return place, change if number == 1 else f"{change} #{number}"


def read_list() -> set[tuple[str, str]]:
    """Every entry: the function or module, and how the changed lines read."""
    entries = [match for line in LIST.read_text("utf-8").splitlines() if (match := ENTRY.fullmatch(line))]
    return {(entry["place"], entry["change"]) for entry in entries}
