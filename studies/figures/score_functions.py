"""Score functions over training: one line per run, including collapsed ones (App. A.3)."""

from matplotlib.figure import Figure

from bagcert.report.drawing import PALETTE, panels, percent_axis, picture
from studies.figures.stored_results import Drawn, Stock

NOTE = "Validation split, one line for each seed; a cross ends a run whose loss was no number any more."


def score_functions(stock: Stock) -> Drawn:
    """Clean and certified accuracy of all runs over the epochs."""
    found, missing = stock.curves.found, stock.curves.missing
    if not found:
        return Drawn(None, (missing,))
    steps = list(dict.fromkeys(run.step for run in found))

    def draw() -> Figure:
        figure, axes = panels(2, width=9.2)
        for ax, kind in zip(axes, ("clean", "certified"), strict=True):
            for run, curve in found.items():
                color = PALETTE[steps.index(run.step)]
                shares = [100 * share for share in (curve.clean if kind == "clean" else curve.certified)]
                ax.plot(curve.epochs, shares, color=color, linewidth=1.2, alpha=0.8, label=run.step)
                if curve.collapsed:
                    ax.plot(curve.epochs[-1:], shares[-1:], "X", color=color, ms=8, clip_on=False)
            percent_axis(ax, "accuracy, %" if ax is axes[0] else "")
            ax.set_xlabel("epochs")
            ax.set_title(kind if kind == "clean" else "certified against 5×5, every-region")
        lines, labels = axes[0].get_legend_handles_labels()
        once = dict(zip(labels, lines, strict=True))
        figure.legend(once.values(), once.keys(), loc="outside right center")
        return figure

    return Drawn(picture("score-functions", "Score functions over training", NOTE, draw), (missing,))
