"""What makes a footprint, as rows keep it, and how to read it: one function per key that some scorer's `reach` has."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bagcert.errors import UsageError
from bagcert.scorers.views import HiddenRectangles, HiddenSets, flags, flags_of, runs_of
from bagcert.threats import Footprint, Layer
from bagcert.threats.footprint import Branch, pair
from bagcert.threats.threat import Size

NUMBERS = ("kernel", "stride", "dilation", "padding")
MOST_CELLS = 2**27  # in a table of flags: rows may come from anywhere
MOST_MAPS = 2**6


def layer_table(layers: Sequence[Layer]) -> list[dict[str, list[int]]]:
    """Kernel, stride, dilation and padding of a chain of layers, each for rows and columns."""
    return [{key: list(pair(getattr(layer, key))) for key in NUMBERS} for layer in layers]


def read_layers(layers: list[dict[str, list[int]]], image_size: Size) -> Footprint:
    footprint = Footprint.identity(image_size)
    for table in layers:
        layer = Layer(**{key: (sides[0], sides[1]) for key, sides in table.items()})
        for inputs, kernel, padding in zip(footprint.grid, pair(layer.kernel), pair(layer.padding), strict=True):
            need_cells(inputs + 2 * padding, kernel, inputs)
        footprint = footprint.then(layer)
    return footprint


def need_cells(*sides: int) -> None:
    """Refuse a footprint for which a table of flags with these sides would be made."""
    if math.prod(sides) > MOST_CELLS:
        raise UsageError("The footprint in the rows is too large to be drawn. Copy the rows again.")


def pixel_table(footprint: Footprint) -> dict[str, Any]:
    """For each row and column of scores the runs of pixels that it sees, as pairs of start and length.

    Nothing for networks whose branches see a form that is no product of rows and columns.
    """
    if len(footprint.branches) != 1:
        return {}
    branch = footprint.branches[0]
    return {
        "pixels": {
            "rows": [runs_of(seen) for seen in branch.rows],
            "columns": [runs_of(seen) for seen in branch.columns],
        }
    }


def read_pixels(pixels: dict[str, list[list[list[int]]]], image_size: Size) -> Footprint:
    axes = []
    for axis, size in zip(("rows", "columns"), image_size, strict=True):
        need_cells(sum(1 + len(runs) for runs in pixels[axis]), size)
        axes.append(torch.stack([flags_of(each, size) for each in pixels[axis]]))
    return Footprint((Branch(*axes),))


def read_kept(kept: list[int], image_size: Size) -> Footprint:
    return Footprint.ablation((kept[0], kept[1]), image_size)


def read_hidden(hidden: dict[str, Any], image_size: Size) -> Footprint:
    if "sets" in hidden:
        need_cells(len(hidden["sets"]), *image_size)
        need_cells(max(map(len, hidden["sets"])), *image_size)
        sets = [flags_of(each, image_size[0] * image_size[1]).view(image_size) for each in hidden["sets"]]
        return HiddenSets(torch.stack(sets)).footprint
    return HiddenRectangles(flags(hidden["rows"], image_size[0]), flags(hidden["columns"], image_size[1])).footprint


def read_maps(maps: list[dict[str, Any]], image_size: Size) -> Footprint:
    if len(maps) > MOST_MAPS:
        raise UsageError(f"The footprint in the rows has {len(maps)} maps, more than {MOST_MAPS}. Copy the rows again.")
    return Footprint.interleaved([read_footprint({"image_size": image_size, **each}) for each in maps])


REACHES: dict[str, Callable[[Any, Size], Footprint]] = {
    "layers": read_layers,
    "pixels": read_pixels,
    "kept": read_kept,
    "hidden": read_hidden,
    "maps": read_maps,
}


def read_footprint(table: dict[str, Any]) -> Footprint:
    """The footprint that a table with an image size and some scorer's `reach` describes."""
    height, width = table["image_size"]
    for key, read in REACHES.items():
        if key in table:
            return read(table[key], (height, width))
    raise UsageError(
        f"Nothing says what makes the footprint: {', '.join(REACHES)} are all missing. Certify a model by its name."
    )
