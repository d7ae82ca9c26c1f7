"""Which outputs a patch can reach, exactly, from the numbers that built the layers.

A layer acts on rows and columns separately, so an output sees a set of rows times a set of columns. Along one axis
that is a boolean matrix [outputs, inputs]; a chain of layers is a product of such matrices. Stride, dilation, padding,
borders and wrap-around are all in the matrix, so there is no formula to get wrong near a border. Branches that meet
again (a residual block) give the union of their products; a branch inside another adds nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.threats.regions import Family, MaskRegions, Regions, SeparableRegions, longest
from bagcert.threats.threat import Rectangles, Size, Threat

IntOrPair = int | tuple[int, int]
CPU = torch.device("cpu")  # of every footprint, even while its network is built elsewhere


def pair(value: IntOrPair) -> tuple[int, int]:
    """The same number for rows and columns, unless both are given."""
    numbers = (value, value) if isinstance(value, Integral) else tuple(value) if isinstance(value, Iterable) else ()
    if len(numbers) != 2 or not all(isinstance(number, Integral) for number in numbers):
        raise UsageError(
            f"A size must be a whole number of pixels, or rows and columns, but is {value!r}. Give 7 or (7, 5)."
        )
    return int(numbers[0]), int(numbers[1])


@dataclass(frozen=True)
class Layer:
    """A convolution or a pool: numbers for both axes, or (rows, columns); `padding` adds zeros on both sides.

    >>> import bagcert
    >>> layers = [bagcert.Layer(3, padding=1), bagcert.Layer(kernel=2, stride=2)]
    >>> bagcert.Footprint.of_layers(layers, image_size=(8, 8)).grid
    (4, 4)
    """

    kernel: IntOrPair
    stride: IntOrPair = 1
    dilation: IntOrPair = 1
    padding: IntOrPair = 0


@dataclass(frozen=True, eq=False)
class Branch:
    """Output (i, j) sees pixel (y, x) if `rows[i, y]` and `columns[j, x]`."""

    rows: Tensor  # bool [i h]
    columns: Tensor  # bool [j w]

    def inside(self, other: "Branch") -> bool:
        return bool((self.rows <= other.rows).all() and (self.columns <= other.columns).all())


@dataclass(frozen=True, eq=False)
class Footprint:
    """R: from a placement of the patch to the outputs it can reach.

    >>> import bagcert
    >>> bagcert.Footprint.of_layers([bagcert.Layer(3, padding=1), bagcert.Layer(3, padding=1)], image_size=(32, 32))
    Footprint(receptive field 5x5, grid 32x32, image 32x32)
    """

    branches: tuple[Branch, ...]

    @staticmethod
    def identity(image_size: Size) -> "Footprint":
        """Every output sees its own pixel."""
        return Footprint((Branch(*(torch.eye(size, dtype=torch.bool, device=CPU) for size in image_size)),))

    @staticmethod
    def of_layers(layers: Sequence[Layer], image_size: Size) -> "Footprint":
        """The footprint of a chain of layers; of a residual block, give the widest path: the others lie inside it."""
        footprint = Footprint.identity(image_size)
        for layer in layers:
            footprint = footprint.then(layer)
        return footprint

    @staticmethod
    def centered(receptive_field: IntOrPair, stride: IntOrPair, image_size: Size, grid: Size) -> "Footprint":
        """Output i sees the pixels i·stride ± (receptive_field - 1)/2: stacked odd kernels, padded by kernel // 2."""
        fields, strides = pair(receptive_field), pair(stride)
        for size in (*fields, *strides):
            if size < 1:
                raise UsageError(f"Receptive field and stride must be at least 1, but one is {size}. Give pixels.")
        if fields[0] % 2 == 0 or fields[1] % 2 == 0:
            raise UsageError(
                f"A centered receptive field must be odd, but this one is {fields[0]}x{fields[1]}. "
                "Pass footprint=Footprint.of_layers(...) for a network whose outputs are not centered."
            )
        expected = tuple(-(-size // step) for size, step in zip(image_size, strides, strict=True))
        if expected != grid:
            raise UsageError(
                f"Receptive field {fields[0]}x{fields[1]} and stride {strides[0]}x{strides[1]} on {image_size[0]}x"
                f"{image_size[1]} images make a score grid of {expected[0]}x{expected[1]}, but this one is "
                f"{grid[0]}x{grid[1]}. Check image_size and stride, or pass footprint=Footprint.of_layers(...)."
            )
        padding = (fields[0] // 2, fields[1] // 2)
        return Footprint.identity(image_size).then(Layer(fields, strides, padding=padding))

    @staticmethod
    def ablation(kept: Size, image_size: Size) -> "Footprint":
        """One output per ablated image: it sees `kept` pixels starting at its own, wrapping around the border.

        An axis that is kept whole has a single output: column smoothing of 32x32 images has a 1x32 grid.
        """
        axes = []
        for size, width in zip(image_size, pair(kept), strict=True):
            if not 1 <= width <= size:
                raise UsageError(
                    f"An ablation must keep 1 to {size} pixels, but this one keeps {width}. Choose another number."
                )
            starts = torch.arange(size if width < size else 1, device=CPU)
            seen = (starts[:, None] + torch.arange(width, device=CPU)) % size
            axes.append(torch.zeros(len(starts), size, dtype=torch.bool, device=CPU).scatter(1, seen, True))
        return Footprint((Branch(*axes),))

    @staticmethod
    def interleaved(footprints: "Sequence[Footprint]") -> "Footprint":
        """Of several maps on one grid, row by row in turn: the first rows of all maps, then their second rows.

        Each map is a branch that sees nothing in the rows of the others. So every score keeps the footprint that it has
        in its own map, and the region of a placement is the union of its regions in all of them.
        """
        first, maps = footprints[0], len(footprints)
        for other in footprints:
            check_same_grid(first, other)
        branches = []
        for number, footprint in enumerate(footprints):
            for branch in footprint.branches:
                rows = torch.zeros(maps * first.grid[0], first.image_size[0], dtype=torch.bool)
                rows[number::maps] = branch.rows
                branches.append(Branch(rows, branch.columns))
        return Footprint(tuple(branches))

    def __repr__(self) -> str:
        sides = {"receptive field": self.receptive_field, "grid": self.grid, "image": self.image_size}
        return f"Footprint({', '.join(f'{words} {height}x{width}' for words, (height, width) in sides.items())})"

    def same(self, other: "Footprint") -> bool:
        """Made of the same branches in the same order."""
        return len(self.branches) == len(other.branches) and all(
            one.inside(two) and two.inside(one) for one, two in zip(self.branches, other.branches, strict=True)
        )

    @property
    def image_size(self) -> Size:
        return self.branches[0].rows.shape[1], self.branches[0].columns.shape[1]

    @property
    def grid(self) -> Size:
        return self.branches[0].rows.shape[0], self.branches[0].columns.shape[0]

    @property
    def receptive_field(self) -> Size:
        """Height and width of the largest rectangle of pixels that one output sees."""
        return (
            max(longest(branch.rows) for branch in self.branches),
            max(longest(branch.columns) for branch in self.branches),
        )

    def then(self, layer: Layer) -> "Footprint":
        """The footprint after one more layer on top."""
        axes = zip(self.grid, *map(pair, (layer.kernel, layer.stride, layer.dilation, layer.padding)), strict=True)
        rows, columns = (taps(*numbers) for numbers in axes)
        return self.mapped(rows, columns)

    def mapped(self, rows: Tensor, columns: Tensor) -> "Footprint":
        """The footprint after a step whose outputs see its inputs by these two matrices [outputs, inputs]."""
        return union(Branch(compose(rows, branch.rows), compose(columns, branch.columns)) for branch in self.branches)

    def join(self, other: "Footprint") -> "Footprint":
        """The footprint after two branches of a network are added or concatenated."""
        check_same_grid(self, other)
        return union((*self.branches, *other.branches))

    def regions(self, threat: Threat) -> Regions:
        """R(l) for every placement l of one patch of the threat; `count` of them are reached at once."""
        if threat.image_size != self.image_size:
            raise UsageError(
                f"The threat is for images of {threat.image_size[0]}x{threat.image_size[1]}, but these have "
                f"{self.image_size[0]}x{self.image_size[1]}. Build it for this image size."
            )
        if threat.masks is None:
            return self._rectangle_regions(threat.rectangles, threat.count)
        masks = torch.zeros(len(threat.masks), *self.grid, dtype=torch.bool)
        for branch in self.branches:
            masks |= compose(branch.rows, compose(threat.masks, branch.columns.T))
        return MaskRegions(masks, torch.tensor(threat.placements()), threat.count)

    def _rectangle_regions(self, rectangles: tuple[Rectangles, ...], count: int) -> Regions:
        """Sets of rows times sets of columns; plain masks if branches form a shape that is no such product."""
        parts: list[SeparableRegions] = []
        for branch in self.branches:
            families = []
            for shape, rows, columns in rectangles:
                reached = (
                    touched(branch.rows, shape[0])[rows.start : rows.stop],
                    touched(branch.columns, shape[1])[columns.start : columns.stop],
                )
                families.append(Family.product(*reached, shape, (rows.start, columns.start)))
            parts.append(SeparableRegions(tuple(families), count))
        if len(parts) == 1:
            return parts[0]
        masks = parts[0].masks()
        for part in parts[1:]:
            masks |= part.masks()
        return MaskRegions(masks, parts[0].placements, count)


def check_same_grid(one: Footprint, other: Footprint) -> None:
    """Refuse branches whose outputs do not lie over each other."""
    if (one.grid, one.image_size) != (other.grid, other.image_size):
        raise UsageError(
            f"Branches must end on one grid, but these end on {one.grid[0]}x{one.grid[1]} and "
            f"{other.grid[0]}x{other.grid[1]}. Check their strides and padding."
        )


def taps(inputs: int, kernel: int, stride: int, dilation: int, padding: int) -> Tensor:
    """Bool [outputs, inputs]: output o of a convolution sees input o·stride - padding + t·dilation, t < kernel."""
    if min(kernel, stride, dilation) < 1 or padding < 0:
        raise UsageError(
            f"Kernel, stride and dilation must be at least 1 and padding at least 0, but they are {kernel}, {stride}, "
            f"{dilation} and {padding}. Give the numbers of the layer."
        )
    outputs = (inputs + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    if outputs < 1:
        raise UsageError(
            f"Kernel {kernel} with dilation {dilation} does not fit into {inputs} inputs padded by {padding}. "
            "Use larger images or smaller kernels."
        )
    with CPU:
        seen = torch.arange(outputs)[:, None] * stride - padding + torch.arange(kernel) * dilation  # outputs, kernel
        return (seen[:, :, None] == torch.arange(inputs)).any(dim=1)


def compose(later: Tensor, earlier: Tensor) -> Tensor:
    """Boolean matrix product. float32 counts exactly up to 2**24, and in reduced precision zero stays zero."""
    return later.float() @ earlier.float() > 0


def touched(seen: Tensor, length: int) -> Tensor:
    """Bool [starts, outputs]: which outputs see any of the `length` consecutive inputs from each start on."""
    return seen.T.unfold(0, length, 1).any(dim=2)


def union(branches: Iterable[Branch]) -> Footprint:
    """The branches that lie inside no other branch."""
    kept: list[Branch] = []
    for branch in branches:
        if not any(branch.inside(other) for other in kept):
            kept = [other for other in kept if not other.inside(branch)] + [branch]
    return Footprint(tuple(kept))
