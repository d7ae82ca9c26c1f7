"""Figures that compare models, proofs with attacks, and classes with their rivals."""

from collections import Counter

import torch
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from bagcert.report.drawing import MARKERS, PALETTE, Picture, axes, picture
from bagcert.report.inputs import Inputs
from bagcert.rows.accuracy import wilson
from bagcert.rows.attacked import AttackRows
from bagcert.rows.certified import Rows
from bagcert.rows.format import Evaluation

MOST_CLASSES = 40  # a larger matrix is unreadable


def scatter_figure(inputs: Inputs) -> Picture | None:
    """Clean against certified accuracy of all models and rules, for the patch that most of them have."""
    patch = Counter(entry.patch for rows in inputs.certified.values() for entry in rows.results).most_common(1)[0][0]
    found = [
        (inputs.label(model, entry.rule), rows.accuracies(entry))
        for model, rows in inputs.certified.items()
        for entry in rows.results
        if entry.patch == patch
    ]
    if len(found) < 2:
        return None

    def draw() -> Figure:
        figure, ax = axes()
        for place, (name, shares) in enumerate(found):
            ax.errorbar(
                100 * shares.clean,
                100 * shares.certified,
                xerr=whiskers(shares.clean, shares.images),
                yerr=whiskers(shares.certified, shares.images),
                fmt=MARKERS[place % len(MARKERS)],
                color=PALETTE[place % len(PALETTE)],
                label=name,
                elinewidth=1,
                markersize=8,
            )
        ax.set_xlabel("clean accuracy, %")
        ax.set_ylabel("certified accuracy, %")
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
        return figure

    note = f"Against {patch} patches; bars are 95 % intervals."
    return picture("clean-certified", "Clean against certified accuracy", note, draw)


def whiskers(share: float, images: int) -> list[list[float]]:
    """How far the confidence interval reaches below and above a share, in percent."""
    low, high = wilson(round(share * images), images)
    return [[100 * (share - low)], [100 * (high - share)]]


def attack_figure(attacks: list[tuple[str, AttackRows]]) -> Picture | None:
    """The range of the accuracy under attack: from what is proven to what an attack reached."""
    if not attacks:
        return None

    def draw() -> Figure:
        figure, ax = axes(height=1.6 + 0.6 * len(attacks))
        for place, (_, rows) in enumerate(attacks):
            low, high = 100 * rows.certified_accuracy, 100 * rows.attacked_accuracy
            ax.plot([low, high], [place, place], color=PALETTE[7], linewidth=7, alpha=0.35, solid_capstyle="butt")
            clean = 100 * rows.clean_accuracy
            for value, marker, size, name, color in (
                (low, "o", 13, "certified: no attack gets below", PALETTE[0]),
                (high, "X", 8, "attacked: this attack got here", PALETTE[1]),
                (clean, "|", 13, "clean", PALETTE[7]),
            ):
                once = name if place == 0 else None
                ax.plot(value, place, marker, color=color, ms=size, markeredgewidth=2, label=once, clip_on=False)
        names = [f"{name}, {rows.header['patch']}" for name, rows in attacks]
        ax.set_yticks(range(len(attacks)), names)
        ax.set_ylim(-0.6, len(attacks) - 0.4)
        ax.set_xlim(0, 100)
        ax.set_xlabel("accuracy, %")
        ax.grid(False, axis="y")
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
        return figure

    note = "The accuracy under the strongest possible attack lies on the gray bar."
    return picture("certified-attacked", "Between proof and attack", note, draw)


def rival_figure(model: str, rows: Rows, entry: Evaluation, classes: list[str]) -> Picture | None:
    """Which class is the weakest rival of which, as shares of the images predicted as each class."""
    certificate = rows.results[entry]
    if certificate.weakest_class is None or len(classes) > MOST_CLASSES:
        return None
    counts = torch.zeros(len(classes), len(classes), dtype=torch.int64)
    ones = torch.ones_like(certificate.predicted)
    counts.index_put_((certificate.predicted, certificate.weakest_class), ones, accumulate=True)

    def draw() -> Figure:
        figure, ax = axes(7.4, 1.2 + 0.38 * len(classes))
        shares = counts / counts.sum(dim=1, keepdim=True).clamp(min=1)
        # One hue of rising opacity: empty cells show the page's own color.
        colors = [[(*to_rgba(PALETTE[0])[:3], 0.75 * float(share)) for share in line] for line in shares]
        ax.imshow(colors, aspect="auto", interpolation="nearest")
        for row, column in counts.nonzero().tolist():
            if shares[row, column] >= 0.005:
                ax.text(column, row, f"{100 * shares[row, column]:.0f}", ha="center", va="center", fontsize=9)
        ax.set_xticks(range(len(classes)), classes, rotation=35, ha="right", rotation_mode="anchor")
        ax.set_yticks(range(len(classes)), classes)
        ax.set_xlabel("closest rival after the worst attack")
        ax.set_ylabel("predicted")
        ax.grid(False)
        ax.tick_params(length=0)
        return figure

    note = f"{model} against {entry.patch} by {entry.rule}; percent of the images predicted as the class of the row."
    return picture("rivals", "Who comes closest", note, draw)


def first_with_rivals(inputs: Inputs) -> tuple[str, Rows, Evaluation] | None:
    """The first rows that say which rival comes closest."""
    for model, rows in inputs.certified.items():
        entry = inputs.main(rows)
        if rows.results[entry].weakest_class is not None:
            return model, rows, entry
    return None
