"""Clean against certified accuracy of all defenses; the size of a mark is the time for 10,000 images."""

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bagcert.report.drawing import MARKERS, PALETTE, Picture, axes, picture
from bagcert.rows.accuracy import Accuracies
from studies.rivals.papers import PAPERS
from studies.rivals.plan import MAIN_PATCH
from studies.rivals.results import Standing

NAME, TITLE = "comparison", "Defenses compared"
NOTE = (
    f"CIFAR-10 test images against {MAIN_PATCH} patches. Marks that are joined are rules on the same scores. The "
    "diameter of a mark grows with the logarithm of the seconds for 10,000 images; open marks: time not measured on a "
    "GPU, or what a paper says of its own defense (stars)."
)
MARKS = MARKERS[:-1]  # a star is a paper's own figure
STEPS = (1.0, 10.0, 100.0, 1000.0)  # seconds, in the legend
OPEN_SIZE, STAR_SIZE = 6.0, 12.0


def diameter(seconds: float) -> float:
    """In points, by the logarithm of the time, so that both 1 s and 1,000 s are visible."""
    return max(5.0, 7.0 + 3.5 * math.log10(seconds))


def draw_comparison(found: list[Standing]) -> Picture | None:
    """The figure, or None if there are no rows."""
    shown = [standing for standing in found if points(standing)]
    if not shown:
        return None

    def draw() -> Figure:
        figure, ax = axes(8.4, 4.6)
        for standing in shown:
            draw_standing(ax, standing, look(found, standing))
        for name, said in papers(shown):
            ax.plot(*said, "*", ms=STAR_SIZE, mfc="none", mec=PALETTE[7], mew=1.5, zorder=4)
            ax.annotate(name, said, xytext=(8, 0), textcoords="offset points", ha="left", va="center", fontsize=8)
        ax.set_xlabel("clean accuracy, %")
        ax.set_ylabel("certified accuracy, %")
        ax.margins(0.1)
        ax.legend(handles=legend(found, shown), loc="center left", bbox_to_anchor=(1, 0.5), labelspacing=0.7)
        return figure

    return picture(NAME, TITLE, NOTE, draw)


def papers(shown: list[Standing]) -> list[tuple[str, tuple[float, float]]]:
    """What the papers of these defenses say, if confirmed."""
    known = [(each.name, PAPERS[each.name].accuracies) for each in shown if each.name in PAPERS]
    return [(name, accuracies[MAIN_PATCH]) for name, accuracies in known if MAIN_PATCH in accuracies]


def points(standing: Standing) -> list[Accuracies]:
    """From the weakest rule to the strongest."""
    shares = (standing.at(rule) for rule in standing.rules)
    return sorted((each for each in shares if each is not None), key=lambda each: each.certified)


def look(found: list[Standing], standing: Standing) -> tuple[str, str]:
    """Color and mark, independent of what else is shown."""
    place = [each.name for each in found].index(standing.name)
    return PALETTE[place % len(PALETTE)], MARKS[place % len(MARKS)]


def draw_standing(ax: Axes, standing: Standing, style: tuple[str, str]) -> None:
    color, mark = style
    places = [(100 * shares.clean, 100 * shares.certified) for shares in points(standing)]
    ax.plot(*zip(*places, strict=True), color=color, linewidth=1)
    timed = standing.cost is not None and standing.cost.on_gpu
    size = diameter(standing.cost.seconds) if standing.cost is not None and timed else OPEN_SIZE
    fill = color if timed else "none"
    for place in places:  # small marks in front of large ones
        ax.plot(*place, mark, color=color, ms=size, mfc=fill, mew=1.2, alpha=0.85, zorder=3 - size / 100)


def legend(found: list[Standing], shown: list[Standing]) -> list[Line2D]:
    handles = []
    for standing in shown:
        color, mark = look(found, standing)
        words = f"{standing.name} (ours)" if standing.ours else standing.name
        handles.append(Line2D([], [], color=color, marker=mark, ms=OPEN_SIZE, linewidth=1, label=words))
    star = Line2D([], [], mfc="none", mec=PALETTE[7], mew=1.5, marker="*", ms=STAR_SIZE, linestyle="none")
    star.set_label("as its paper says")
    sizes = [
        Line2D([], [], color=PALETTE[7], marker="o", ms=diameter(step), linestyle="none", label=f"{step:,.0f} s")
        for step in STEPS
    ]
    return [*handles, star, *sizes]
