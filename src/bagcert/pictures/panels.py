"""Three panels: a picture with the weakest placement, and the scores of the predicted class and its closest rival."""

import io
from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from bagcert.threats import Footprint, RegionThreat
from bagcert.threats.threat import bounding_box

COLORS, SEEN = ("#c8504b", "#b0529f"), "#7a7f87"  # the weakest placement and the second, in every panel
Box = Sequence[int]  # row, column, height, width: of pixels, or of outputs


class Panels(Figure):
    """A figure that notebooks show without being asked to."""

    def _repr_png_(self) -> bytes:
        content = io.BytesIO()
        self.savefig(content, format="png", dpi=110, facecolor="white")
        return content.getvalue()


def draw_panels(
    pixels: NDArray[Any],
    title: str,
    maps: Sequence[tuple[str, NDArray[Any]]],
    placements: Sequence[Box],
    reached: Sequence[Box],
    height: float = 2.0,
) -> Figure:
    """The figure, `height` inches high.

    `pixels` [h w c] are bytes or floats in 0..1; `maps` are titles and scores [i j]. `placements` are the
    weakest one on the picture, and the second one if the rule has pairs; `reached` are the outputs that each reaches.
    """
    figure = Panels(figsize=(2.5 * height, height), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(maps))
    first.imshow(
        pixels if pixels.shape[2] == 3 else pixels[:, :, 0],
        cmap="gray",
        vmin=0,
        vmax=255 if pixels.dtype == "u1" else 1,
    )
    first.set_title(title, fontsize=9)
    for box, color in zip(placements, COLORS, strict=False):
        outline(first, box, color)
    low, high = min(values.min() for _, values in maps), max(1, *(values.max() for _, values in maps))
    for ax, (words, values) in zip(others, maps, strict=True):
        ax.imshow(values, cmap="cividis", vmin=low, vmax=high, interpolation="nearest")
        ax.set_title(words, fontsize=9)
        for box, color in zip(reached, COLORS, strict=False):
            outline(ax, box, color)
    for ax in (first, *others):
        ax.set_axis_off()
    return figure


def reach(footprint: Footprint, placement: Box) -> list[int]:
    """R(l): the rectangle of outputs around everything that a patch at this placement can reach."""
    mask = torch.zeros(1, *footprint.image_size, dtype=torch.bool)
    row, column, height, width = placement
    mask[:, row : row + height, column : column + width] = True
    return list(bounding_box(footprint.regions(RegionThreat(mask)).masks()[0]))


def outline(ax: Axes, box: Box, color: str, **options: Any) -> None:
    top, left, height, width = box
    style = {"fill": False, "edgecolor": color, "linewidth": 1.6, **options}
    ax.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, **style))
