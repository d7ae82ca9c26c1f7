"""Entries of the leaderboard by what is known of them, and their tables."""

from dataclasses import dataclass

from bagcert.rules import detects

REFUSED, CHECKED, REPRODUCED = "refused", "arithmetic checked", "reproduced"
NAMES = ("defense", "rule", "clean %", "certified %", "passes", "seconds per image", "device", "rows")
HEAD = f"| {' | '.join(NAMES)} |\n|{'---|' * len(NAMES)}\n"


@dataclass(frozen=True)
class Cost:
    """What a decision takes with its proof: forward passes and seconds per image, of network and rule, on a device."""

    passes: int
    seconds: float
    device: str

    @property
    def cells(self) -> tuple[str, ...]:
        return f"{self.passes:,}", f"{self.seconds:.2g}", self.device


@dataclass(frozen=True)
class Result:
    """One evaluation of an entry, counted with our labels."""

    patch: str
    rule: str
    clean: float
    certified: float
    cost: Cost | None = None  # if it was reproduced


@dataclass(frozen=True)
class Entry:
    """Rows that were checked; `why` says why they are on no higher level."""

    name: str
    level: str
    why: str = ""
    data: str = ""
    images: int = 0
    results: tuple[Result, ...] = ()
    rows_sha256: str = ""  # of the records, each of which names its scores by digest


Line = tuple[Result, Entry]  # of a table


def tables(entries: list[Entry]) -> str:
    """The page's tables, the most proven first. Other levels, data, images, patches or promises are not compared."""
    parts = []
    for level in (REPRODUCED, CHECKED):
        lines = [(result, entry) for entry in entries if entry.level == level for result in entry.results]
        for kind in sorted({kind_of(line) for line in lines}):
            data, images, patch, detection = kind
            mine = sorted((line for line in lines if kind_of(line) == kind), key=lambda line: -line[0].certified)
            promised = "this answer or an alert" if detection else "this answer"
            title = f"### {level.capitalize()}: {data}, {patch}, {promised}, first {images:,} test images"
            parts.append(f"{title}\n\n{HEAD}" + "\n".join(map(row, mine)))
    return "\n\n".join(parts) + "\n"


def kind_of(line: Line) -> tuple[str, int, str, bool]:
    """Lines of one kind may be compared: they have data, images, patch and kind of promise in common."""
    result, entry = line
    return entry.data, entry.images, result.patch, detects(result.rule)


def row(line: Line) -> str:
    result, entry = line
    cost = ("–", "–", "–") if result.cost is None else result.cost.cells
    cells = (f"`{entry.name}`", result.rule, f"{100 * result.clean:.2f}", f"{100 * result.certified:.2f}", *cost)
    return f"| {' | '.join((*cells, f'`{entry.rows_sha256[:12]}`'))} |"
