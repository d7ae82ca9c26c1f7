"""Accuracy under attack against clean and certified accuracy (App. A.2)."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bagcert.report.comparisons import attack_figure, whiskers
from bagcert.report.drawing import MARKERS, PALETTE, panels, picture
from bagcert.rows.attacked import AttackRows
from bagcert.scorers.residual import CIFAR_KERNELS
from studies.figures.plan import MARGINS, SweepModel
from studies.figures.stored_results import Drawn, Stock

COLORS = dict(zip(CIFAR_KERNELS, PALETTE, strict=False))  # by receptive field
MARKS = dict(zip(MARGINS, MARKERS, strict=False))


def attacked(stock: Stock) -> Drawn:
    """Both scatter plots of the sweep: an attack bounds the robust accuracy from above, a certificate from below."""
    found, missing = stock.sweep_attacks.found, stock.sweep_attacks.missing
    if not found:
        return Drawn(None, (missing,))

    def draw() -> Figure:
        figure, (left, right) = panels(2, width=9.2)
        for model, rows in found.items():
            draw_model(left, rows.clean_accuracy, model, rows)
            draw_model(right, rows.certified_accuracy, model, rows)
        for ax in (left, right):
            ax.set(xlim=ax.get_xlim(), ylim=ax.get_ylim())  # the diagonal must not widen them
            ax.axline((0, 0), slope=1, color=PALETTE[7], linewidth=1, linestyle="--")
        left.set_xlabel("clean accuracy, %")
        right.set_xlabel("certified accuracy, %")
        left.set_ylabel("accuracy under attack, %")
        figure.legend(handles=legend(found), loc="outside right center")
        return figure

    rows = next(iter(found.values()))
    note = (
        f"The first {rows.header['images']:,} test images, {rows.header['patch']} patches, {rows.header['rule']}; bars "
        "are 95 % intervals. On the dashes both accuracies are equal: no attack gets below what is certified."
    )
    return Drawn(picture("attacked", "Accuracy under attack", note, draw), (missing,))


def bounds(stock: Stock) -> Drawn:
    """The shipped models: between what is proven and what an attack reached."""
    attacks = [(model, rows) for (model, _), rows in stock.bounds.found.items()]
    return Drawn(attack_figure(attacks), (stock.bounds.missing,))


def draw_model(ax: Axes, across: float, model: SweepModel, rows: AttackRows) -> None:
    images, up = len(rows.labels), rows.attacked_accuracy
    ax.errorbar(
        100 * across,
        100 * up,
        xerr=whiskers(across, images),
        yerr=whiskers(up, images),
        fmt=MARKS[model.margin],
        color=COLORS[model.receptive_field],
        elinewidth=0.8,
        alpha=0.85,
    )


def legend(found: dict[SweepModel, AttackRows]) -> list[Line2D]:
    """Colors are receptive fields, marks are margins."""
    fields = sorted({model.receptive_field for model in found})
    margins = sorted({model.margin for model in found})
    handles = [Line2D([], [], color=COLORS[field], linewidth=3, label=f"field {field}") for field in fields]
    for margin in margins:
        mark = MARKS[margin]
        handles.append(Line2D([], [], color=PALETTE[7], marker=mark, linestyle="none", label=f"M = {margin}"))
    return handles
