"""The page of the comparison, and the picture on it."""

from pathlib import Path

from bagcert.errors import UsageError
from bagcert.files import write_atomically
from studies.common.tables import place_of
from studies.rivals.figure import NAME, draw_comparison
from studies.rivals.results import Standing
from studies.rivals.tables import TABLES, blank_page, filled

PAGE = "comparison.md"


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
    drawn = draw_comparison(found)
    if drawn is None:
        return [page]
    figure = out / "figures" / f"{NAME}.svg"
    write_atomically(figure, drawn.svg.encode())
    write_atomically(figure.with_suffix(".png"), drawn.png)
    return [page, figure]
