"""Certified accuracy against size and shape of the patch (the paper's third and fourth figure).

From left to right: the shipped models, the receptive fields of the sweep at M = 0.5, and its margins at receptive field
7. Each line is one network, trained once.
"""

import math
from collections.abc import Callable

from matplotlib.figure import Figure

from bagcert.report.drawing import Point, draw_lines, panels, percent_axis, picture
from bagcert.report.patch_shapes import certified
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation
from bagcert.scorers.residual import CIFAR_KERNELS
from studies.figures.plan import MARGINS, RECTANGLES, SQUARES, SweepModel
from studies.figures.stored_results import Drawn, Stock

PAPER_FIELD, PAPER_MARGIN = 7, 0.5  # the configuration the paper recommends
Panel = dict[str, list[Point]]  # the lines of one panel by their names


def patch_sizes(stock: Stock) -> Drawn:
    """Squares from 1x1 to 10x10."""
    found = all_panels(stock, SQUARES)
    ticks = {float(place): patch.partition("x")[0] for place, patch in enumerate(SQUARES)}
    note = "Square patches; a masking rule is built anew for each size."
    draw = drawer(found, ticks, "side of the patch, pixels")
    title = "Certified accuracy against patch size"
    return Drawn(picture("patch-sizes", title, note, draw), (stock.shipped.missing, stock.sweep.missing))


def aspect_ratios(stock: Stock) -> Drawn:
    """Every rectangle of 24 pixels, each on its own."""
    found = all_panels(stock, RECTANGLES)
    ticks = {float(place): patch.replace("x", "×") for place, patch in enumerate(RECTANGLES)}
    note = "Patches of 24 pixels, height × width, each a threat of its own."
    draw = drawer(found, ticks, "patch, pixels: from wide to tall")
    title = "Certified accuracy against aspect ratio"
    return Drawn(picture("aspect-ratios", title, note, draw), (stock.shipped.missing, stock.sweep.missing))


def all_panels(stock: Stock, patches: tuple[str, ...]) -> dict[str, Panel]:
    """Panels with at least one line, by their titles; patches are evenly spaced."""

    def line(rows: Rows, rule: str) -> list[Point]:
        """A line has a gap where a patch has not been measured."""
        entries = [Evaluation(patch, rule) for patch in patches]
        known = [certified(rows, entry) if entry in rows.results else math.nan for entry in entries]
        return [(float(place), share) for place, share in enumerate(known)] if any(map(math.isfinite, known)) else []

    shipped = {
        f"{model}, {rule}": line(rows, rule)
        for model, rows in stock.shipped.found.items()
        for rule in ("every-region", "two-mask")
    }
    sweep = {model: line(rows, "every-region") for model, rows in stock.sweep.found.items()}
    fields = {f"field {field}": sweep.get(SweepModel(field, PAPER_MARGIN), []) for field in CIFAR_KERNELS}
    margins = {f"M = {margin}": sweep.get(SweepModel(PAPER_FIELD, margin), []) for margin in MARGINS}
    named = {"shipped models": shipped, f"sweep, M = {PAPER_MARGIN}": fields, f"sweep, field {PAPER_FIELD}": margins}
    drawn = {title: {name: points for name, points in panel.items() if points} for title, panel in named.items()}
    return {title: panel for title, panel in drawn.items() if panel}


def drawer(found: dict[str, Panel], ticks: dict[float, str], words: str) -> Callable[[], Figure]:
    def draw() -> Figure:
        figure, axes = panels(len(found), width=5.4 + 2.1 * len(found), height=4.4)
        for ax, (title, lines) in zip(axes, found.items(), strict=True):
            draw_lines(ax, lines, ticks, words)
            percent_axis(ax, "certified accuracy, %" if ax is axes[0] else "")
            ax.set_title(title)
            ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=1 if len(lines) < 4 else 2)
        return figure

    return draw
