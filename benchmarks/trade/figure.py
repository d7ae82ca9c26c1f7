"""Images per second against certified accuracy: up and to the right is better."""

from typing import Any

from matplotlib.figure import Figure

from bagcert.report.drawing import PALETTE, Picture, axes, picture

NAME, TITLE = "trade", "Speed against proofs"
OURS, OTHERS = PALETTE[0], PALETTE[7]
# Where a name stands beside its mark, in points, if it would lie on another one.
BESIDE = {"mask-ds": (-52, -3)}


def draw_trade(found: dict[str, Any]) -> Picture:
    """Absolute on a GPU; on a CPU relative to one of our models."""
    rows = found["defenses"]
    absolute = all("images_per_second" in row for row in rows.values())
    key = "images_per_second" if absolute else "of_base"
    note = f"CIFAR-10 against {found['patch']} patches, all timed in one run on one device: {found['device']}."

    def draw() -> Figure:
        figure, ax = axes(7.8, 4.4)
        for name, row in rows.items():
            color = OURS if row["ours"] else OTHERS
            at = row[key], 100 * row["certified"]
            ax.plot(*at, "o" if row["ours"] else "s", color=color, ms=8)
            ax.annotate(name, at, xytext=BESIDE.get(name, (8, -3)), textcoords="offset points", fontsize=9)
        ax.set_xscale("log")
        ax.margins(x=0.14)
        ax.set_ylim(0, 100)
        ax.set_ylabel("certified accuracy, %")
        ax.set_xlabel("images per second" if absolute else f"images per second, relative to {found['base']}")
        return figure

    return picture(NAME, TITLE, note, draw)
