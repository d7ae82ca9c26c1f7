"""Certified accuracy against size and shape of the patch, from whatever evaluations the rows hold."""

import re
from collections import defaultdict
from collections.abc import Iterator

from matplotlib.figure import Figure

from bagcert.report.drawing import Picture, Point, axes, draw_lines, percent_axis, picture
from bagcert.report.inputs import Inputs
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation

SAME_AREA = 1.05  # 24 and 25 pixels count as one area


def shape_of(patch: str) -> tuple[int, int] | None:
    """Height and width of a plain `HxW` patch."""
    match = re.fullmatch(r"(\d+)x(\d+)", patch)
    return (int(match[1]), int(match[2])) if match else None


def series(inputs: Inputs) -> Iterator[tuple[str, str, Rows, dict[tuple[int, int], Evaluation]]]:
    """For each model and rule, its evaluations by patch shape."""
    for model, rows in inputs.certified.items():
        for rule in dict.fromkeys(entry.rule for entry in rows.results):
            found = {shape: entry for entry in rows.results if entry.rule == rule and (shape := shape_of(entry.patch))}
            yield model, rule, rows, found


def certified(rows: Rows, entry: Evaluation) -> float:
    return 100 * rows.accuracies(entry).certified


def lines_figure(lines: dict[str, list[Point]], ticks: dict[float, str], words: str, log: bool) -> Figure:
    figure, ax = axes()
    draw_lines(ax, lines, ticks, words)
    if log:
        ax.set_xscale("log")
        ax.minorticks_off()
        ax.set_xticks(list(ticks), list(ticks.values()))
    percent_axis(ax, "certified accuracy, %")
    ax.legend(loc="lower left" if len(lines) < 5 else "upper right", ncols=1 + len(lines) // 5)
    return figure


def size_figure(inputs: Inputs) -> Picture | None:
    """Certified accuracy against square patches (the paper's third figure)."""
    lines, sides = {}, set()
    for model, rule, rows, found in series(inputs):
        points = [(float(shape[0]), certified(rows, entry)) for shape, entry in found.items() if shape[0] == shape[1]]
        if len(points) > 1:
            lines[inputs.label(model, rule)] = points
            sides |= {side for side, _ in points}
    if not lines:
        return None
    ticks = {side: f"{side:.0f}×{side:.0f}" for side in sorted(sides)}
    note = "One network, not retrained; a masking rule is built anew for each size."
    return picture(
        "patch-size",
        "Certified accuracy against patch size",
        note,
        lambda: lines_figure(lines, ticks, "square patch, pixels", log=False),
    )


def aspect_figure(inputs: Inputs) -> Picture | None:
    """Certified accuracy against patches of one area and different shapes (the paper's fourth figure)."""
    area = common_area(inputs)
    lines: dict[str, list[Point]] = {}
    ticks: dict[float, str] = {}
    for model, rule, rows, found in series(inputs):
        here = {shape: entry for shape, entry in found.items() if area <= shape[0] * shape[1] <= SAME_AREA * area}
        if len(here) > 1:
            lines[inputs.label(model, rule)] = [(w / h, certified(rows, entry)) for (h, w), entry in here.items()]
            ticks |= {w / h: f"{h}×{w}" for h, w in here}
    if not lines:
        return None
    note = f"Patches of about {area} pixels, height × width."
    return picture(
        "aspect-ratio",
        "Certified accuracy against aspect ratio",
        note,
        lambda: lines_figure(lines, dict(sorted(ticks.items())), "patch, from tall to wide", log=True),
    )


def common_area(inputs: Inputs) -> int:
    """The area that most shapes have."""
    shapes = {shape for _, _, _, found in series(inputs) for shape in found}
    areas: dict[int, int] = defaultdict(int)
    for height, width in shapes:
        area = height * width
        areas[area] = sum(area <= h * w <= SAME_AREA * area for h, w in shapes)
    return max(areas, key=lambda area: (areas[area], area), default=0)
