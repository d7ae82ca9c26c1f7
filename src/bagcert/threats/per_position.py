"""Linear layers that act on the channels of each position, in the forms in which people write them."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from torch import fx

from bagcert.threats.seen import Seen, arguments


def reshaped(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """Any change of shape that leaves images, rows and columns axes of their own, or makes the last two one axis.

    Numbers keep their order, row by row. Number n of a tensor has the index (n // t) % s along an axis of size s that
    has t numbers per step, where t is the product of the sizes after it. So an axis of the result with the same s and t
    has the same index: it is the same axis, whatever happens to the others. Two neighbors of sizes h and w, the second
    with t numbers per step, are together an axis of size h*w with t numbers per step, and the other way around.
    """
    seen, before, after = sources[0], node.args[0].meta["val"].shape, node.meta["val"].shape  # type: ignore[union-attr]
    batch, rows, columns = seen.axes
    height, width = seen.footprint.grid
    step = per_step(before, columns)
    images = find_axis(after, before[batch], per_step(before, batch))
    if seen.flat:
        first, second = find_axis(after, height, step * width if step else None), find_axis(after, width, step)
        one = find_axis(after, height * width, step)
    else:
        first, second = find_axis(after, height, per_step(before, rows)), find_axis(after, width, step)
        neighbors = columns == rows + 1
        one = find_axis(after, height * width, step) if neighbors else None
    if images is None:
        return None
    if first is not None and second is not None and len({images, first, second}) == 3:
        return Seen(seen.footprint, (images, first, second), len(after))
    if one is not None and one != images:
        return Seen(seen.footprint, (images, one, one), len(after))
    return None


def per_step(shape: Sequence[Any], axis: int) -> int | None:
    """How many numbers one step along an axis passes over; None if that depends on the number of images."""
    later = shape[axis + 1 :]
    return prod(later) if all(isinstance(size, int) for size in later) else None


def find_axis(shape: Sequence[Any], size: Any, step: int | None) -> int | None:
    """The axis of that size with so many numbers per step."""
    if step is None:
        return None
    found = (axis for axis in range(len(shape)) if per_step(shape, axis) == step and same_size(shape[axis], size))
    return next(found, None)


def same_size(one: Any, two: Any) -> bool:
    """Equal numbers, or the same symbol: a symbol also equals the number that it stood for in tracing."""
    return type(one) is type(two) and str(one) == str(two)


def moved(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """The same numbers with their axes in another order, found by moving the axes of an empty tensor."""
    marked = torch.empty([axis + 1 for axis in range(sources[0].rank)], device="meta")
    order = [size - 1 for size in node.target(marked, *node.args[1:]).shape]  # type: ignore[operator]
    batch, rows, columns = (order.index(axis) for axis in sources[0].axes)
    return replace(sources[0], axes=(batch, rows, columns))


def matmul(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """With a fixed matrix, on either side: mixes the last axis, or the one before it, which must hold channels."""
    ranks = [operand.meta["val"].dim() for operand in node.args]  # type: ignore[union-attr]
    if len(sources) > 1 or sorted(ranks) != [2, sources[0].rank]:
        return None
    mixed = sources[0].rank - 1 if ranks[1] == 2 else sources[0].rank - 2
    return None if mixed in sources[0].axes else sources[0]


def conv1d(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """With a kernel of 1 over all positions in one axis."""
    options = arguments(node)
    kernel = options["weight"].meta["val"].shape[2]
    plain = kernel == 1 and list(options["stride"]) == [1] and options["padding"] in ([0], "valid", "same")
    return sources[0] if plain and len(sources) == 1 and (sources[0].axes, sources[0].rank) == ((0, 2, 2), 3) else None


def einsum(node: fx.Node, sources: list[Seen]) -> Seen | None:
    """A sum over channels of one tensor that sees the image, times weights.

    The letters of images, rows and columns stand once at that tensor and once in the result. So each result at a
    position is made of numbers at that position alone, whatever the weights and the other letters are.
    """
    options = arguments(node)
    given, arrow, result = options["equation"].replace(" ", "").partition("->")
    terms = given.split(",")
    seen, rank = sources[0], sources[0].rank
    ranks = [operand.meta["val"].dim() for operand in options["tensors"]]
    mine = [term for term, each in zip(terms, ranks, strict=True) if each == rank and len(sources) == 1]
    if not arrow or len(mine) != 1 or any("..." in term for term in terms if term is not mine[0]):
        return None  # which tensor sees the image must be certain: it alone has so many axes
    spread = "".join(chr(0x2460 + number) for number in range(rank - len(mine[0].replace("...", ""))))
    letters, result = mine[0].replace("...", spread), result.replace("...", spread)
    kept = [letters[axis] for axis in seen.axes]
    if any(letters.count(letter) != 1 or result.count(letter) != 1 for letter in kept):
        return None
    batch, rows, columns = (result.index(letter) for letter in kept)
    found = Seen(seen.footprint, (batch, rows, columns), len(result))
    return found if found.fits(node.meta["val"].shape) else None
