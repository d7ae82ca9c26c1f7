"""The footprint as a network really has it: put NaN into pixels and see which outputs turn NaN."""

import copy

import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.threats.footprint import Footprint
from bagcert.threats.threat import RectangleThreat


@torch.no_grad()
def reached_outputs(module: nn.Module, pixels: Tensor, channels: int) -> Tensor:
    """For each set of pixels, bool [n h w], the outputs [n i j] that a NaN in them reaches."""
    images = torch.full((len(pixels), channels, *pixels.shape[1:]), 0.5, dtype=torch.float64)
    images.masked_fill_(pixels[:, None], torch.nan)
    return plainly(module)(images).isnan().any(dim=1)  # type: ignore[no-any-return]


def plainly(module: nn.Module) -> nn.Module:
    """A copy in float64 on the CPU, where convolutions are computed tap by tap.

    Fast algorithms that transform tiles (Winograd, FFT) would spread a NaN over a tile.
    """
    return copy.deepcopy(module).double().cpu().eval()


@torch.no_grad()
def check_footprint(module: nn.Module, footprint: Footprint, channels: int) -> None:
    """Refuse a footprint that a pixel escapes from: by NaN, or by another value where comparisons swallow NaN.

    At 16 single pixels all over the image and, before, its corners. It is a check of the tracing, not a proof.
    """
    height, width = footprint.image_size
    regions = footprint.regions(RectangleThreat(footprint.image_size, ((1, 1),)))
    network = plainly(module)
    draw = torch.Generator().manual_seed(0)
    image, other = torch.rand(2, 1, channels, height, width, generator=draw, dtype=torch.float64)
    scores = network(image.clone())
    network(other.clone())
    if not torch.equal(scores, network(image.clone())):
        raise UsageError("expected the same scores for the same image, got others; remove noise and memory")
    corners = [0, width - 1, (height - 1) * width, height * width - 1]
    spread = torch.linspace(0, height * width - 1, 16).long().tolist()
    for place in dict.fromkeys([*corners, *spread]):
        row, column = divmod(place, width)
        for value in (torch.full((channels,), torch.nan), other[0, :, row, column]):
            changed = image.clone()
            changed[0, :, row, column] = value
            moved = (network(changed) != scores).any(dim=1)[0]
            escaped = moved & ~regions.masks(torch.tensor([place]))[0]
            if bool(escaped.any()):
                at = tuple(int(number) for number in escaped.nonzero()[0])
                raise UsageError(
                    f"expected pixel ({row}, {column}) to reach its footprint only, got a change at output {at}; "
                    "give the true footprint of this network"
                )
