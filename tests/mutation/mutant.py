"""A mutant as data: made where mutmut is, run where pytest and torch are."""

import gzip
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutation.equivalent import Key


@dataclass(frozen=True)
class Mutant:
    """One edit of one file: what the list of equivalent mutants calls it, and what stands there instead."""

    path: str  # from the root of the repository
    place: str
    change: str
    function: str | None  # whose body changes, as Python qualifies its name; None: read while the file is imported
    start: int
    stop: int
    instead: str

    @property
    def key(self) -> Key:
        return self.place, self.change

    @property
    def text(self) -> str:
        """The whole file with the edit."""
        text = Path(self.path).read_text("utf-8")
        return text[: self.start] + self.instead + text[self.stop :]

    @property
    def digest(self) -> str:
        """Of the whole file: results of another version do not count."""
        return hashlib.sha256(f"{self.path}\n{self.text}".encode()).hexdigest()[:16]


def write_plan(path: Path, mutants: Iterable[Mutant]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps([asdict(mutant) for mutant in mutants]).encode()))


def read_plan(path: Path) -> list[Mutant]:
    return [Mutant(**fields) for fields in json.loads(gzip.decompress(path.read_bytes()))]
