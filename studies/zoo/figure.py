"""Certified accuracy against cost: a panel for each patch, in it recovery and detection of each model."""

import json

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bagcert.report.drawing import MARKERS, PALETTE, Picture, panels, picture
from bagcert.zoo import PATCHES, Entry, share

NAME, TITLE = "zoo", "Certified accuracy against cost"
NOTE = "CIFAR-10 test images, by patch. Filled marks: the class is proven. Open marks: the class, or an alert."
LEAST, MOST, TICKS = 8, 1600, (10, 50, 200, 800)  # milliseconds


def draw_zoo(entries: list[Entry]) -> Picture:
    """The models whose time on a CPU was measured."""
    shown = [each for each in entries if each.cpu is not None]

    def draw() -> Figure:
        figure, each_patch = panels(len(PATCHES), 8.6, 3.9)
        for patch, ax in zip(PATCHES, each_patch, strict=True):
            for each, (color, mark) in zip(shown, looks(shown), strict=True):
                cost = each.cpu.ms_per_image if each.cpu is not None else 0.0
                found = [100 * at for shares in (each.recovery, each.detection) if (at := share(shares, patch, 1))]
                ax.plot([cost] * len(found), found, color=color, linewidth=1)
                for height, fill in zip(found, (color, "white"), strict=False):
                    ax.plot(cost, height, mark, color=color, mfc=fill, mew=1.5, ms=7)
            ax.set_title(patch)
            ax.set_xscale("log")
            ax.set_xlim(LEAST, MOST)
            ax.set_xticks(TICKS, [f"{tick:,}" for tick in TICKS])
            ax.minorticks_off()
        each_patch[0].set_ylabel("certified accuracy, %")
        figure.supxlabel("milliseconds per image, one thread of a CPU", fontsize=10)
        figure.legend(handles=legend(shown), loc="outside right center", labelspacing=0.8)
        return figure

    return picture(NAME, TITLE, NOTE, draw)


def drawn_numbers(entries: list[Entry]) -> str:
    """What the figure shows, as a comment at its end: another version of matplotlib draws other bytes."""
    shown = {
        each.name: [
            each.cpu.ms_per_image,
            *([share(at, patch, 1) for patch in PATCHES] for at in (each.recovery, each.detection)),
        ]
        for each in entries
        if each.cpu is not None
    }
    return f"<!-- {json.dumps(shown)} -->\n"


def looks(shown: list[Entry]) -> list[tuple[str, str]]:
    """A color and a mark for each model."""
    return [(PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]) for place in range(len(shown))]


def legend(shown: list[Entry]) -> list[Line2D]:
    models = [
        Line2D([], [], color=color, marker=mark, linestyle="none", ms=7, label=each.name)
        for each, (color, mark) in zip(shown, looks(shown), strict=True)
    ]
    kinds = [
        Line2D([], [], color=PALETTE[7], marker="o", mfc=fill, mew=1.5, linestyle="none", label=words)
        for words, fill in (("detection", "white"), ("recovery", PALETTE[7]))
    ]
    return [*models, *kinds]
