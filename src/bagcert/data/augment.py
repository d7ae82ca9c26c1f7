"""Augmentation of whole batches as tensor code: flip and padded random crop.

Drawing random numbers and applying them are separate steps, so that each process of a distributed run can draw for the
global batch and apply its own part. Images may be uint8 or float; new pixels are zero, which is black in both.
"""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from bagcert.errors import UsageError


def flip(images: Tensor, flipped: Tensor) -> Tensor:
    """Mirror the images for which `flipped` [b] is true."""
    return torch.where(flipped[:, None, None, None], images.flip(-1), images)


def crop(images: Tensor, top: Tensor, left: Tensor, padding: int) -> Tensor:
    """Pad each image by `padding` zeros on every side and cut its old size out again, at `top`, `left` [b]."""
    batch, channels, height, width = images.shape
    padded = pad(images, (padding, padding, padding, padding))
    rows = top[:, None] + torch.arange(height, device=images.device)  # b h
    columns = left[:, None] + torch.arange(width, device=images.device)  # b w
    picked = padded.gather(2, rows[:, None, :, None].expand(batch, channels, height, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(batch, channels, height, width))


@dataclass(frozen=True)
class Draws:
    """The random numbers of one batch, one row per image."""

    flipped: Tensor  # [b] bool
    offsets: Tensor  # [b 2] top and left of the crop, in 0..2·padding

    def part(self, rows: slice) -> "Draws":
        return Draws(self.flipped[rows], self.offsets[rows])


@dataclass(frozen=True)
class Augmentation:
    """Which of the two steps to apply; False and 0 leave a step out."""

    flip: bool = True
    crop_padding: int = 4

    def __post_init__(self) -> None:
        if self.crop_padding < 0:
            raise UsageError(f"The crop padding must be 0 or more pixels, but is {self.crop_padding}.")

    def draw(self, batch: int, generator: Generator) -> Draws:
        """Random numbers for `batch` images. Both steps are drawn, so that neither changes if the other is left out."""
        device = generator.device
        flipped = torch.rand(batch, generator=generator, device=device) < 0.5
        offsets = torch.randint(2 * self.crop_padding + 1, (batch, 2), generator=generator, device=device)
        return Draws(flipped, offsets)

    def apply(self, images: Tensor, draws: Draws) -> Tensor:
        if self.crop_padding:
            images = crop(images, draws.offsets[:, 0], draws.offsets[:, 1], self.crop_padding)
        if self.flip:
            images = flip(images, draws.flipped)
        return images

    def __call__(self, images: Tensor, generator: Generator) -> Tensor:
        return self.apply(images, self.draw(len(images), generator))
