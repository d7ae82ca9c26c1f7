"""What a tensor inside a network sees of the image, and the arguments of the operation that made it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from bagcert.threats.footprint import Footprint


@dataclass(frozen=True, eq=False)
class Seen:
    """What a tensor inside the network sees of the image: its footprint, and which of its axes are rows and columns.

    `axes` are the positions of batch, rows and columns; every other axis holds channels. Rows and columns may be one
    axis that holds all positions, row by row.
    """

    footprint: Footprint
    axes: tuple[int, int, int] = (0, 2, 3)
    rank: int = 4  # how many axes there are

    @property
    def flat(self) -> bool:
        """Whether one axis holds rows and columns."""
        return self.axes[1] == self.axes[2]

    def fits(self, shape: Sequence[Any]) -> bool:
        """Whether a tensor of this shape has every position once: none was lost or repeated along its axes."""
        height, width = self.footprint.grid
        if self.flat:
            return bool(shape[self.axes[1]] == height * width)
        return (shape[self.axes[1]], shape[self.axes[2]]) == (height, width)


Handler = Callable[[fx.Node, list[Seen]], Seen | None]  # None: this use of the operation mixes positions


def arguments(node: fx.Node) -> dict[str, Any]:
    """Every argument of the operation by its name, defaults included."""
    schema = node.target._schema.arguments  # type: ignore[union-attr]
    given = {argument.name: value for argument, value in zip(schema, node.args, strict=False)}
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    return {**defaults, **given, **node.kwargs}
