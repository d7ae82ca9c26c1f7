"""The footprint as a network really has it: put NaN into pixels and see which outputs turn NaN."""

import copy

import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.threats.footprint import Footprint
from bagcert.threats.threat import RectangleThreat


@torch.no_grad()
def reached_outputs(module: nn.Module, pixels: Tensor, channels: int) -> Tensor:
    """For each set of pixels, bool [n h w], the outputs [n i j] that a NaN in them reaches.

    In float64 on the CPU, where convolutions are computed tap by tap: fast algorithms that transform tiles (Winograd,
    FFT) would spread a NaN over a tile.
    """
    double = copy.deepcopy(module).double().cpu().eval()
    images = torch.full((len(pixels), channels, *pixels.shape[1:]), 0.5, dtype=torch.float64)
    images.masked_fill_(pixels[:, None], torch.nan)
    return double(images).isnan().any(dim=1)  # type: ignore[no-any-return]


def check_footprint(module: nn.Module, footprint: Footprint, channels: int) -> None:
    """Refuse a footprint that NaN escapes from, on 16 single pixels all over the image and, before, its corners."""
    height, width = footprint.image_size
    threat = RectangleThreat(footprint.image_size, ((1, 1),))
    regions = footprint.regions(threat)
    corners = [0, width - 1, (height - 1) * width, height * width - 1]
    spread = torch.linspace(0, height * width - 1, 16).long().tolist()
    for place in dict.fromkeys([*corners, *spread]):
        pixels = torch.zeros(1, height, width, dtype=torch.bool)
        pixels.view(-1)[place] = True
        escaped = reached_outputs(module, pixels, channels)[0] & ~regions.masks(torch.tensor([place]))[0]
        if bool(escaped.any()):
            row, column = (int(number) for number in escaped.nonzero()[0])
            raise UsageError(
                f"expected pixel ({place // width}, {place % width}) to reach its footprint only, got a change at "
                f"output ({row}, {column}); give the true footprint of this network"
            )
