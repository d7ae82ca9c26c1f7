"""What each operation of a network does to footprints. Operations that mix positions, or may do so, have no entry.

A handler takes the operation and what its inputs see, and returns what its result sees, or None if this use of the
operation mixes positions.
"""

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from bagcert.threats.footprint import Footprint, Layer
from bagcert.threats.per_position import conv1d, einsum, matmul, moved, reshaped
from bagcert.threats.seen import Handler, Seen, arguments

# One value in, one value out, position by position.
POINTWISE = (
    "_to_copy abs add alias ceil celu clamp clamp_max clamp_min clone contiguous cos detach div elu eq erf exp "
    "floor ge gelu gt hardsigmoid hardswish hardtanh heaviside le leaky_relu lift_fresh_copy log logical_not lt "
    "maximum minimum mish mul ne neg pow prelu reciprocal relu relu6 round rsqrt rsub selu sigmoid sign silu sin "
    "softplus sqrt square sub tanh threshold to type_as where"
)
# Along the axes `dim`: allowed over channels only.
ALONG_AXES = "amax amin argmax cumsum linalg_vector_norm log_softmax logsumexp mean softmax std sum var"


def pointwise(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """The union of what the operands see. Refused if one is broadcast along rows or columns, or gains axes."""
    shape, first = node.meta["val"].shape, sources[0]
    footprint = sources[0].footprint
    for source in sources:
        if (source.axes, source.rank, source.footprint.grid) != (first.axes, len(shape), footprint.grid):
            return None
        footprint = footprint.join(source.footprint)
    return replace(first, footprint=footprint) if first.fits(shape) else None


def dropout(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Does nothing in eval mode; scores that change from call to call carry no proof."""
    return None if arguments(node)["train"] else sources[0]


def along_axes(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """A reduction or a softmax: allowed over channels, not over images, rows or columns."""
    options = arguments(node)
    dims, rank = options.get("dim"), node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    if dims is None or dims == []:
        return None
    taken = {dim % rank for dim in (dims if isinstance(dims, list | tuple) else [dims])}
    if taken & set(sources[0].axes):
        return None
    if node.meta["val"].dim() == rank:
        return sources[0]
    batch, rows, columns = (axis - sum(dim < axis for dim in taken) for axis in sources[0].axes)
    return Seen(sources[0].footprint, (batch, rows, columns), rank - len(taken))


def both(value: Any) -> tuple[int, int]:
    """An argument of a convolution or pool: one number, or one for each axis."""
    numbers = list(value) if isinstance(value, list | tuple) else [value]
    return numbers[0], numbers[-1]


def convolution(node: fx.Node, sources: list[Seen]) -> Seen | None:
    options = arguments(node)
    height, width = options["weight"].meta["val"].shape[2:]
    if len(sources) > 1:
        return None  # a kernel made from the image sees all of it
    stride, dilation, padding = both(options["stride"]), both(options["dilation"]), options["padding"]
    if isinstance(padding, str):
        spans = (dilation[0] * (height - 1), dilation[1] * (width - 1))
        if padding == "same" and (spans[0] % 2 or spans[1] % 2):
            return None  # padded unevenly
        padding = (spans[0] // 2, spans[1] // 2) if padding == "same" else 0
    return over_grid(sources[0], sources[0].footprint.then(Layer((height, width), stride, dilation, both(padding))))


def pooling(node: fx.Node, sources: list[Seen]) -> Seen | None:
    options = arguments(node)
    kernel = both(options["kernel_size"])
    stride = both(options["stride"]) if options["stride"] else kernel
    footprint = sources[0].footprint.then(
        Layer(kernel, stride, both(options.get("dilation", 1)), both(options["padding"]))
    )
    if footprint.grid != tuple(node.meta["val"].shape[2:]):
        return None  # ceil_mode
    return over_grid(sources[0], footprint)


def over_grid(source: Seen, footprint: Footprint) -> Seen | None:
    """Convolutions and the like slide over the last two axes: those must be rows and columns."""
    return Seen(footprint) if (source.axes, source.rank) == ((0, 2, 3), 4) else None


def batch_norm(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """A fixed scale and shift, unless it takes its statistics from the batch."""
    return None if arguments(node)["training"] else over_grid(sources[0], sources[0].footprint)


def layer_norm(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Over the last axes: allowed if those are channels."""
    rank, over = node.meta["val"].dim(), len(arguments(node)["normalized_shape"])
    return None if set(range(rank - over, rank)) & set(sources[0].axes) else sources[0]


def linear(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Mixes the last axis: allowed if that holds channels and the weights are fixed."""
    return None if len(sources) > 1 or node.meta["val"].dim() - 1 in sources[0].axes else sources[0]


def concatenate(node: fx.Node, sources: list[Seen]) -> Seen | None:
    joined = arguments(node)["dim"] % node.meta["val"].dim()
    return None if joined in sources[0].axes else pointwise(node, sources)


def split(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """chunk and split give several tensors: allowed along channels."""
    rank = node.args[0].meta["val"].dim()  # type: ignore[union-attr]
    return None if arguments(node)["dim"] % rank in sources[0].axes else sources[0]


def cut(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """A slice: any part of the channels, rows or columns, but always all images."""
    options = arguments(node)
    dim = options["dim"] % node.meta["val"].dim()
    kept = slice(options["start"], options["end"], options["step"])
    if dim == sources[0].axes[0]:
        return sources[0] if kept in (slice(None, None, 1), slice(0, sys.maxsize, 1)) else None
    if dim not in sources[0].axes:
        return sources[0]
    if sources[0].flat:
        return None  # a part of the positions is no product of rows and columns
    axes = [torch.eye(length) for length in sources[0].footprint.grid]
    axis = sources[0].axes.index(dim) - 1
    axes[axis] = axes[axis][kept]
    return replace(sources[0], footprint=sources[0].footprint.mapped(*axes))


def flip(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Rows or columns in reverse: each output sees what the opposite one saw. The order of images must not change."""
    batch, *positions = sources[0].axes
    turned = {dim % node.meta["val"].dim() for dim in arguments(node)["dims"]}
    if batch in turned or sources[0].flat:
        return None
    across = [torch.eye(length) for length in sources[0].footprint.grid]
    rows, columns = (seen.flip(0) if axis in turned else seen for axis, seen in zip(positions, across, strict=True))
    return replace(sources[0], footprint=sources[0].footprint.mapped(rows, columns))


def constant_pad(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Rows and columns of a constant. A mirrored or repeated pixel would be seen by more outputs, and is refused."""
    options = arguments(node)
    if options.get("mode", "constant") != "constant" or len(options["pad"]) != 4:
        return None
    left, right, top, bottom = options["pad"]
    rows, columns = sources[0].footprint.grid
    return over_grid(sources[0], sources[0].footprint.mapped(shift(rows, top, bottom), shift(columns, left, right)))


def shift(size: int, before: int, after: int) -> Tensor:
    """Bool [outputs, inputs] of padding by constants; negative amounts crop."""
    outputs = torch.arange(size + before + after) - before
    return outputs[:, None] == torch.arange(size)


def asserted(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """A check of type and shape that comes with a change of type: it has no result."""
    return sources[0]


# Weights made from the image would see all of it, so these may take the image only as their first argument.
OF_FIRST_ARGUMENT = ("conv1d", "conv2d", "linear", "batch_norm", "layer_norm")

# Constants that take only type, device and perhaps size from a tensor.
FILLED = ("full_like", "new_full", "new_ones", "new_zeros", "ones_like", "zeros_like")

HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(POINTWISE.split(), pointwise),
    **dict.fromkeys(ALONG_AXES.split(), along_axes),
    **dict.fromkeys(("max_pool2d", "avg_pool2d"), pooling),
    **dict.fromkeys(("dropout", "feature_dropout"), dropout),
    **dict.fromkeys(("chunk", "split"), split),
    **dict.fromkeys(("pad", "constant_pad_nd"), constant_pad),
    **dict.fromkeys(("flatten", "reshape", "unflatten", "unsqueeze", "view"), reshaped),
    **dict.fromkeys(("mT", "movedim", "permute", "transpose"), moved),
    "_assert_tensor_metadata": asserted,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "linear": linear,
    "matmul": matmul,
    "cat": concatenate,
    "conv1d": conv1d,
    "conv2d": convolution,
    "einsum": einsum,
    "flip": flip,
    "slice": cut,
}
