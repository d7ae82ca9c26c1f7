"""Features as one matrix: a row for each position, rows of zeros between images and lines, a column for each feature.

With one row of zeros after each line and a line of them after each image, the neighbors of a position are rows at fixed
distances, and those beyond a border are zero. So a 3x3 convolution is nine products of the matrix, each moved by some
rows, and nothing is copied. Six rows in a hundred are zeros, for 32x32 positions.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Layout:
    """So many images of so many positions."""

    images: int
    height: int
    width: int

    @property
    def line(self) -> int:
        """Rows from a position to the one below it."""
        return self.width + 1

    @property
    def each(self) -> int:
        """Rows of an image."""
        return (self.height + 1) * self.line

    @property
    def rows(self) -> int:
        return self.images * self.each

    def moves(self, taps: int) -> list[int]:
        """By how many rows the matrix is moved for each tap of a kernel: 1, or 9 in the order of its weights."""
        if taps == 1:
            return [0]
        return [down * self.line + across for down in (-1, 0, 1) for across in (-1, 0, 1)]

    def real(self, device: torch.device) -> Tensor:
        """Which rows are positions, bool [rows]."""
        one = torch.ones(1, 1, self.height, self.width, device=device)
        return self.spread(one.expand(self.images, -1, -1, -1)).flatten().bool()

    def spread(self, features: Tensor) -> Tensor:
        """[b c h w] as [rows c]."""
        padded = F.pad(features, (0, 1, 0, 1)).permute(0, 2, 3, 1)
        return padded.reshape(self.rows, -1)

    def gathered(self, matrix: Tensor) -> Tensor:
        """[rows c] as [b c h w]."""
        padded = matrix.view(self.images, self.height + 1, self.line, -1)
        return padded[:, : self.height, : self.width].permute(0, 3, 1, 2)
