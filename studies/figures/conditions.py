"""Clean against certified accuracy of each network by every condition (the paper's second figure)."""

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bagcert.report.drawing import PALETTE, axes, picture
from bagcert.rows.accuracy import Accuracies
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation
from studies.figures.plan import CONDITIONS, MAIN_PATCH
from studies.figures.stored_results import Drawn, Stock

MARKS = dict(zip(CONDITIONS, ("o", "*", "D"), strict=True))
SIZES = {"o": 6.0, "*": 11.0, "D": 5.5}
PUBLISHED = (86.0, 60.0)  # section 4: receptive field 7, M = 0.5, Condition 3.2
NOTE = (
    f"All test images against {MAIN_PATCH} patches; marks of one network are joined. The mask rule answers by its own "
    "inference, which moves its clean accuracy."
)


@dataclass(frozen=True)
class Network:
    """A network's accuracies by rule, and how it is named and colored."""

    label: str
    color: str
    by_rule: dict[str, Accuracies]


def clean_certified(stock: Stock) -> Drawn:
    """Conditions 3.3 and 3.2 of one network joined by a line, and on to the two-mask rule."""
    networks = [
        Network(model, PALETTE[place % len(PALETTE)], by_rule(rows))
        for place, (model, rows) in enumerate(stock.shipped.found.items())
    ]
    fields = sorted({model.receptive_field for model in stock.sweep.found})
    for model, rows in stock.sweep.found.items():
        color = PALETTE[(len(stock.shipped.found) + fields.index(model.receptive_field)) % len(PALETTE)]
        networks.append(Network(f"sweep, receptive field {model.receptive_field}", color, by_rule(rows)))

    def draw() -> Figure:
        figure, ax = axes()
        for network in networks:
            draw_network(ax, network)
        ax.plot(*PUBLISHED, "*", ms=SIZES["*"] + 2, mfc="none", mec=PALETTE[7], mew=1.5)
        ax.set_xlabel("clean accuracy, %")
        ax.set_ylabel("certified accuracy, %")
        ax.margins(0.08)
        ax.legend(handles=legend(networks), loc="center left", bbox_to_anchor=(1, 0.5))
        return figure

    title = "Clean against certified accuracy"
    return Drawn(picture("clean-certified", title, NOTE, draw), (stock.sweep.missing,))


def by_rule(rows: Rows) -> dict[str, Accuracies]:
    entries = {rule: Evaluation(MAIN_PATCH, rule) for rule in CONDITIONS}
    return {rule: rows.accuracies(entry) for rule, entry in entries.items() if entry in rows.results}


def draw_network(ax: Axes, network: Network) -> None:
    points = [(100 * shares.clean, 100 * shares.certified) for shares in network.by_rule.values()]
    ax.plot(*zip(*points, strict=True), color=network.color, linewidth=1)
    for rule, point in zip(network.by_rule, points, strict=True):
        ax.plot(*point, MARKS[rule], color=network.color, ms=SIZES[MARKS[rule]])


def legend(networks: list[Network]) -> list[Line2D]:
    """Colors are networks, marks are conditions."""
    colors = {network.label: network.color for network in networks}
    handles = [Line2D([], [], color=color, linewidth=3, label=label) for label, color in colors.items()]
    for rule, words in CONDITIONS.items():
        mark = MARKS[rule]
        handles.append(Line2D([], [], color=PALETTE[7], marker=mark, ms=SIZES[mark], linestyle="none", label=words))
    published = Line2D([], [], mfc="none", mec=PALETTE[7], mew=1.5, marker="*", ms=SIZES["*"] + 2, linestyle="none")
    published.set_label("BagCert as published,\nCondition 3.2")
    return [*handles, published]
