"""The page of the comparison, the picture on it, and the same rows on the page of the leaderboard."""

from pathlib import Path

from bagcert.errors import UsageError
from bagcert.files import write_atomically
from studies.common.tables import fill, place_of
from studies.rivals.figure import NAME, draw_comparison
from studies.rivals.results import Standing
from studies.rivals.tables import TABLES, blank_page, filled, unchecked_table

PAGE = "comparison.md"
LEADERBOARD, UNCHECKED = "leaderboard.md", "unchecked"  # the page and its mark


def write_page(out: Path, found: list[Standing]) -> list[Path]:
    """Update the tables of the page, or start one, and draw the figure; returns what was written."""
    page = out / PAGE
    try:
        text = page.read_text(encoding="utf-8") if page.exists() else blank_page()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{page} cannot be read as text ({error}). Move it away for a new page.") from error
    for name in TABLES:
        if not place_of(name).search(text):
            raise UsageError(f"{page} has no <!-- {name} -->. Put it where a table goes, or move the page away.")
    write_atomically(page, filled(text, found).encode())
    written = [page]
    other = out / LEADERBOARD
    if other.exists():
        text = other.read_text(encoding="utf-8")
        write_atomically(other, fill(text, UNCHECKED, unchecked_table(found)).encode())
        written.append(other)
    drawn = draw_comparison(found)
    if drawn is None:
        return written
    figure = out / "figures" / f"{NAME}.svg"
    write_atomically(figure, drawn.svg.encode())
    write_atomically(figure.with_suffix(".png"), drawn.png)
    return [*written, figure]
