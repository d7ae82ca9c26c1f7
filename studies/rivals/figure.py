"""All defenses at one glance: what each proves, of what it answers rightly, and how often it looks at an image."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bagcert.report.drawing import PALETTE, Picture, axes, picture
from bagcert.rows.accuracy import Accuracies
from studies.rivals.papers import PAPERS
from studies.rivals.plan import MAIN_PATCH
from studies.rivals.results import Standing

NAME, TITLE = "comparison", "Defenses compared"
NOTE = (
    f"CIFAR-10 test images against {MAIN_PATCH} patches, each defense by its own rule. Dark: right and proven; light: "
    "right; blue: ours. A star is the certified accuracy that a paper states for its own defense."
)
OURS, OTHERS = PALETTE[0], PALETTE[7]


def draw_comparison(found: list[Standing]) -> Picture | None:
    """The figure, or None if there are no rows."""
    shown = [(standing, shares) for standing in found if (shares := own_shares(standing)) is not None]
    if not shown:
        return None
    shown.sort(key=lambda each: each[1].certified)

    def draw() -> Figure:
        figure, ax = axes(7.8, 0.8 + 0.42 * len(shown))
        for place, (standing, shares) in enumerate(shown):
            draw_bar(ax, place, standing, shares)
        said = dict(papers([standing for standing, _ in shown]))
        for place, (standing, _) in enumerate(shown):
            if standing.name in said:
                ax.plot(said[standing.name][1], place, "*", ms=11, mfc="white", mec=OTHERS, zorder=4)
        ax.set_yticks(range(len(shown)), [name(standing) for standing, _ in shown])
        ax.set_xlim(0, 100)
        ax.set_xlabel(f"test images that are right (light), and proven against {MAIN_PATCH} patches (dark), %")
        ax.tick_params(axis="y", length=0)
        ax.grid(False, axis="y")
        ax.spines["left"].set_visible(False)
        return figure

    return picture(NAME, TITLE, NOTE, draw)


def name(standing: Standing) -> str:
    return f"{standing.name} (ours)" if standing.ours else standing.name


def own_shares(standing: Standing) -> Accuracies | None:
    return standing.at(standing.rules[0])


def papers(shown: list[Standing]) -> list[tuple[str, tuple[float, float]]]:
    """What the papers of these defenses say, if confirmed."""
    known = [(each.name, PAPERS[each.name].accuracies) for each in shown if each.name in PAPERS]
    return [(name, accuracies[MAIN_PATCH]) for name, accuracies in known if MAIN_PATCH in accuracies]


def draw_bar(ax: Axes, place: int, standing: Standing, shares: Accuracies) -> None:
    color = OURS if standing.ours else OTHERS
    ax.barh(place, 100 * shares.clean, height=0.7, color=color, alpha=0.3)
    ax.barh(place, 100 * shares.certified, height=0.7, color=color)
    proven = f"{100 * shares.certified:.1f}"
    ax.text(1, place, proven, va="center", color="white", fontsize=10, fontweight="bold")
    if standing.cost is not None:
        passes = standing.cost.passes
        words = "1 pass" if passes == 1 else f"{passes:,} passes"
        ax.annotate(words, (100, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9)
