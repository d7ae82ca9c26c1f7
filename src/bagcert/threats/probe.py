"""The footprint that a network really has: change pixels and see which outputs change."""

import copy
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from bagcert.errors import UsageError, first_line
from bagcert.program import full_precision
from bagcert.threats.footprint import Footprint
from bagcert.threats.state import unchanged
from bagcert.threats.threat import RectangleThreat
from bagcert.threats.traced_network import Traced
from bagcert.threats.tracing import example_weight

BATCH = 16  # as many images as a defense scores at once
SHOWN = 8  # images, each at every place of a batch
DECLARED = "Give the true footprint of this network."
MIXED_HERE = "This machine mixes positions as it computes the network. Use network.float(), or another device."


@torch.no_grad()
def reached_outputs(module: nn.Module, pixels: Tensor, channels: int) -> Tensor:
    """For each set of pixels, bool [n h w], the outputs [n i j] that a NaN in them reaches."""
    images = torch.full((len(pixels), channels, *pixels.shape[1:]), 0.5, dtype=torch.float64)
    images.masked_fill_(pixels[:, None], torch.nan)
    return plainly(module)(images).isnan().any(dim=1)  # type: ignore[no-any-return]


def copied(module: nn.Module) -> nn.Module:
    """A copy for experiments: whatever the network keeps of them is lost with the copy."""
    try:
        return copy.deepcopy(module)
    except Exception as error:  # a stored score that still has its gradient, a lock, an open file
        raise UsageError(
            f"The network cannot be copied ({first_line(error)}). Remove what it stores between calls."
        ) from error


def plainly(module: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU, where convolutions are computed tap by tap.

    Fast algorithms that transform tiles (Winograd, FFT) would spread a NaN over a tile.
    """
    return copied(module).double().cpu().eval()


@torch.no_grad()
def check_footprint(module: nn.Module, footprint: Footprint, channels: int) -> None:
    """Refuse a footprint if a pixel changes an output outside it: by NaN, or by another value if comparisons hide NaN.

    Tries the corners and 16 single pixels all over the image. It is a check of the tracing, not a proof.
    """
    height, width = footprint.image_size
    regions = footprint.regions(RectangleThreat(footprint.image_size, ((1, 1),)))
    network = plainly(module)
    draw = torch.Generator().manual_seed(0)
    image, other = torch.rand(2, 1, channels, height, width, generator=draw, dtype=torch.float64)
    try:
        scores: Tensor = network(image.clone())
    except Exception as error:
        raise UsageError(
            "The network must also run in float64, where NaN stays at its position, but fails there "
            f"({first_line(error)}). "
            "Give constants the type of the images: images.new_zeros(1), not torch.zeros(1)."
        ) from error
    network(other.clone())
    if not torch.equal(scores, network(image.clone())):
        raise UsageError("The network scores the same image differently the second time. Remove noise and memory.")
    corners = [0, width - 1, (height - 1) * width, height * width - 1]
    spread = torch.linspace(0, height * width - 1, 16).long().tolist()
    for place in dict.fromkeys([*corners, *spread]):
        row, column = divmod(place, width)
        for value in (torch.full((channels,), torch.nan), other[0, :, row, column]):
            changed = image.clone()
            changed[0, :, row, column] = value
            moved = (network(changed) != scores).any(dim=1)[0]
            refuse_escape(moved & ~regions.masks(torch.tensor([place]))[0], row, column)


def refuse_escape(escaped: Tensor, row: int, column: int, cure: str = DECLARED) -> None:
    """Refuse outputs, bool [i j], that a pixel changed outside its footprint."""
    if bool(escaped.any()):
        at = tuple(int(number) for number in escaped.nonzero()[0])
        raise UsageError(f"Pixel ({row}, {column}) must reach its footprint only, but changes output {at}. {cure}")


@full_precision()
def check_traced(module: nn.Module, traced: Traced, channels: int) -> None:
    """Try the traced operations as a defense runs them: own type and device, channels_last, batches, no gradients.

    Scores outside the footprint must stay the same, bit for bit: a certificate leaves no room for rounding, so a
    program whose rounding depends on pixels outside the footprint (a convolution by FFT) cannot be proven. The
    network's own code must compute the same bits, else it looks at something that tracing does not show. It must leave
    the network as it was and draw no random numbers, else it may compute other bits later.
    """
    network = copied(module).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    like = example_weight(network)
    draw = torch.Generator().manual_seed(1)
    images = torch.rand(BATCH, channels, *traced.footprint.image_size, generator=draw).to(like)
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        with unchanged(network):
            own_scores(network, images)
        check_batch(network, traced, images)
        check_places(network, traced, images)
    modes: list[tuple[AbstractContextManager[object], Tensor]] = [
        (torch.no_grad(), images),
        (torch.no_grad(), images.contiguous(memory_format=torch.contiguous_format)),
        (torch.no_grad(), images[:1].contiguous()),
        (torch.enable_grad(), images[:3]),
        (torch.inference_mode(), images[:2]),
    ]
    for mode, batch in modes:
        with mode, unchanged(network):
            own, by_trace = own_scores(network, batch), traced(network, batch.clone())
            if own.dtype != by_trace.dtype or not torch.equal(bits(own), bits(by_trace)):
                raise UsageError(
                    "The network's own code must give the scores of its trace, but gives others for a batch of "
                    f"{len(batch)}. Remove memory, noise and branches on layout, type, batch, gradients or tracing."
                )


def own_scores(network: nn.Module, images: Tensor) -> Tensor:
    """The scores by the network's own code."""
    try:
        scores = network(images.clone())
    except Exception as error:
        raise UsageError(
            f"The network fails on {list(images.shape)} ({first_line(error)}). Check its forward method."
        ) from error
    if not isinstance(scores, Tensor):
        raise UsageError(f"Scores must be one tensor, but are {type(scores).__name__}. Return the score map alone.")
    return scores


def check_batch(network: nn.Module, traced: Traced, images: Tensor) -> None:
    """Change one pixel of each image, at the corners and all over, and compare the scores of all images.

    NaN is tried as well, since a kernel may multiply pixels outside the footprint by 0, which infinities survive.
    """
    height, width = traced.footprint.image_size
    corners = torch.tensor([0, width - 1, (height - 1) * width, height * width - 1])
    places = torch.cat([corners, torch.linspace(0, height * width - 1, BATCH - 2).long()[1:-1]])
    rows, columns = places // width, places % width
    regions = traced.footprint.regions(RectangleThreat(traced.footprint.image_size, ((1, 1),)))
    outside = ~regions.masks(places).to(images.device)
    scores = bits(traced(network, images.clone()))
    each = torch.arange(BATCH)
    there = images[each, :, rows, columns]
    for value in (1 - there.round(), images.flip(0)[each, :, rows, columns], torch.full_like(there, torch.nan)):
        changed = images.clone()
        changed[each, :, rows, columns] = value
        escaped = (bits(traced(network, changed)) != scores).any(dim=1) & outside
        for number in each.tolist():
            refuse_escape(escaped[number], int(rows[number]), int(columns[number]), MIXED_HERE)


def check_places(network: nn.Module, traced: Traced, images: Tensor) -> None:
    """Show some images at every place of a batch: their scores must have the same bits everywhere.

    torch computes the last numbers of a tensor, or of a thread's share, in another way than the others. Many functions
    (SiLU, GELU, sigmoid, powers) and some products of matrices round differently there.
    """
    for image in images[:SHOWN]:
        batch = image.repeat(BATCH, 1, 1, 1).contiguous(memory_format=torch.channels_last)
        scores = bits(traced(network, batch))
        if not torch.equal(scores, scores[:1].expand_as(scores)):
            raise UsageError(
                "A network must give an image the same scores at every place of a batch, but this machine rounds its "
                "functions differently there. Use ReLU, even numbers of features, or a power of 2 of threads."
            )


def bits(scores: Tensor) -> Tensor:
    """Scores as integers with the same bits, so that NaN equals NaN and 0 differs from -0."""
    whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[scores.element_size()]
    return scores.detach().view(whole)
