"""Votes that look like those of a trained network, of any size.

Rules look closer only where it matters, so their cost depends on the maps. On 128 test images the votes of
`cifar10-votes` have these properties, which independent votes do not have: the winner holds 44 to 84 % of the map, the
second class half of that, the least class 8 %; neighbors correlate by 0.6, positions an eighth of the image apart by
0.2. Here votes come in blobs that grow with the image, so that an image of any size is about as hard to certify.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

BLOBS = 5  # along each axis
SMOOTH = 0.75  # share of the variance that comes from blobs
RIVALS = 9
FEW = 0.02  # share of votes of all other classes, at most


def trained_looking_maps(images: int, classes: int, side: int, device: torch.device) -> Tensor:
    """0/1 votes [b k i j], int8. The first ten classes are the strongest, so fewer classes are a slice."""
    maps = torch.empty(images, classes, side, side, dtype=torch.int8, device=device)
    for number, image in enumerate(maps):
        draw = torch.Generator().manual_seed(number)  # on the CPU: the same maps on every device
        strength = 0.4 + 0.45 * torch.rand((), generator=draw)
        rivals = 0.8 * strength * torch.rand(RIVALS, generator=draw).square().sort(descending=True).values
        few = FEW * torch.rand(max(0, classes - 1 - RIVALS), generator=draw)
        chances = torch.cat([strength[None], rivals, few])[:classes].to(device)
        coarse = torch.randn(classes, BLOBS, BLOBS, generator=draw).to(device)
        seed = int(torch.randint(2**62, (), generator=draw))
        # Fine noise is most of the work; only here may another device draw other numbers.
        fine = torch.randn(classes, side, side, generator=torch.Generator(device).manual_seed(seed), device=device)
        blobs = F.interpolate(coarse[None], size=(side, side), mode="bilinear")[0]
        blobs = blobs / blobs.flatten(1).std(dim=1)[:, None, None]
        height = SMOOTH**0.5 * blobs + (1 - SMOOTH) ** 0.5 * fine
        image.copy_(height > -torch.special.ndtri(chances)[:, None, None])
    return maps
