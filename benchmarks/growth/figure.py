"""Curves of time and memory on logarithmic scales: a column for each axis."""

from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from bagcert.report.drawing import MARKERS, PALETTE, Picture, picture
from benchmarks.growth.stated import AXES, STATED

NAME, TITLE = "growth", "How cost grows"
WORDS = {"images": "images", "classes": "classes", "grid": "side of the grid", "patch": "side of the patch"}


def draw_growth(found: dict[str, Any]) -> Picture:
    """Time relative to the smallest size of each curve, and the peak of memory beyond the score maps."""
    note = f"Time of one call relative to the smallest size, and the memory it needs; {found['device']}."

    def draw() -> Figure:
        figure = Figure(figsize=(9.6, 5.6), layout="constrained")
        cells = figure.subplots(2, len(AXES), sharex="col", sharey="row", squeeze=False)
        for place, name in enumerate(STATED):
            look = {"color": PALETTE[place % len(PALETTE)], "marker": MARKERS[place % len(MARKERS)], "ms": 4, "lw": 1.4}
            look |= {"linestyle": "-" if place < len(PALETTE) else "--"}
            for column, axis in enumerate(AXES):
                curve = found["curves"].get(name, {}).get(axis)
                if curve is not None:
                    cells[0][column].plot(curve["sizes"], curve["of_first"], label=name, **look)
                    cells[1][column].plot(curve["sizes"], [each / 2**20 for each in curve["peak_bytes"]], **look)
        for column, axis in enumerate(AXES):
            sizes = max((by[axis]["sizes"] for by in found["curves"].values() if axis in by), key=len, default=[1])
            ticks = sizes[:: max(1, len(sizes) // 3)]
            for ax in cells[:, column]:
                ax.set_xscale("log")
                ax.set_yscale("log")
                ax.xaxis.set_minor_formatter(NullFormatter())
                ax.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
                ax.minorticks_off()
            cells[1][column].set_xlabel(WORDS[axis])
        cells[0][0].set_ylabel("time, relative to the first point")
        cells[1][0].set_ylabel("peak memory, MiB")
        handles = {
            label: handle for ax in cells[0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
        }
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=5)
        return figure

    return picture(NAME, TITLE, note, draw)
