"""How figures look, inlined into the page with its colors and as files on white; and what several of them draw."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Hues of middle lightness: distinct on white and on dark, and for readers who cannot tell red from green.
PALETTE = ("#2f7ebc", "#e0812c", "#2a9d8f", "#b0529f", "#8a8d2b", "#c8504b", "#6c6fd0", "#7a7f87")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
# Placeholders that become colors of the page: no other part of a figure may use them.
INK, MUTED, LINE = "#010203", "#040506", "#070809"
PAGE_COLORS = {INK: "currentColor", MUTED: "var(--muted)", LINE: "var(--line)"}
PAPER_COLORS = {INK: "#1c2127", MUTED: "#5c6570", LINE: "#d8dde3"}
ON_WHITE: dict[str, Any] = {"facecolor": "white", "transparent": False}  # a file may be shown on a dark page
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: crisp, small, and in the page's font
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.8,
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "legend.frameon": False,
    "savefig.transparent": True,
}
Drawer = Callable[[], Figure]
Point = tuple[float, float]


@dataclass(frozen=True)
class Picture:
    """A figure in its three forms."""

    name: str
    title: str
    note: str
    inline: str  # SVG for the page
    svg: str  # SVG on its own
    png: bytes

    def html(self) -> str:
        return f"<figure>{self.inline}<figcaption>{escape(self.note)}</figcaption></figure>"


@contextmanager
def styled(name: str, ink: str, muted: str, line: str) -> Iterator[None]:
    colors = {"text.color": ink, "axes.labelcolor": ink, "axes.titlecolor": ink, "axes.edgecolor": muted}
    colors |= {"xtick.color": muted, "ytick.color": muted, "xtick.labelcolor": ink, "ytick.labelcolor": ink}
    settings: Any = {**STYLE, **colors, "grid.color": line, "svg.hashsalt": name}
    with matplotlib.rc_context(settings):
        yield


def picture(name: str, title: str, note: str, draw: Drawer) -> Picture:
    """Draw once for the page and once for the files."""
    with styled(name, INK, MUTED, LINE):
        drawn = to_svg(draw())
    for color, variable in PAGE_COLORS.items():
        drawn = drawn.replace(color, variable)
    with styled(name, *PAPER_COLORS.values()):
        figure = draw()
        content = io.BytesIO()
        figure.savefig(content, format="png", dpi=160, **ON_WHITE)
        return Picture(name, title, note, inline(drawn, name, title), to_svg(figure, **ON_WHITE), content.getvalue())


def to_svg(figure: Figure, **background: Any) -> str:
    content, nothing = io.StringIO(), dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(content, format="svg", metadata=nothing, **background)
    return content.getvalue()


def inline(svg: str, name: str, title: str) -> str:
    """The SVG element alone, without external addresses and with unique names."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"'[^']*'(?:, '[^']*')*(?:, [A-Za-z ]+)*, sans-serif", "system-ui, sans-serif", svg)
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', svg))
    svg = re.sub(r' id="([^"]*)"', lambda found: f' id="{name}-{found[1]}"' if found[1] in used else "", svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def axes(width: float = 7.4, height: float = 3.9) -> tuple[Figure, Axes]:
    """An empty figure, not made by pyplot, which would keep it in memory and choose a window."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def panels(count: int, width: float = 7.4, height: float = 3.6) -> tuple[Figure, list[Axes]]:
    """An empty figure with axes side by side that share their vertical scale."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(figure.subplots(1, count, sharey=True, squeeze=False)[0])


def draw_lines(ax: Axes, lines: dict[str, list[Point]], ticks: dict[float, str], words: str) -> None:
    """Each line by its name; earlier lines are wider, so that they show below later ones."""
    for place, (name, points) in enumerate(lines.items()):
        color, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
        xs, ys = zip(*sorted(points), strict=True)
        width, side = max(1.6, 3.0 - 0.6 * place), max(5.0, 8.0 - 1.2 * place)
        ax.plot(xs, ys, color=color, marker=marker, linewidth=width, markersize=side, label=name, clip_on=False)
    ax.set_xticks(list(ticks), list(ticks.values()))
    ax.set_xlabel(words)


def percent_axis(ax: Axes, words: str) -> None:
    ax.set_ylabel(words)
    ax.set_ylim(0, 100)
    ax.set_yticks(range(0, 101, 20))
    ax.grid(False, axis="x")
