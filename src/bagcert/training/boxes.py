"""Sums over all windows of one shape, and windows as masks; differentiable, cheap under torch.compile."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F


def box_sums(maps: Tensor, window: tuple[int, int]) -> Tensor:
    """Sums over every window that lies fully inside: [b k i j] to [b k i-height+1 j-width+1].

    One axis after the other: 22 instead of 121 additions for 11x11, and no difference of large running sums.
    """
    height, width = window
    rows = F.avg_pool2d(maps, (height, 1), stride=1, divisor_override=1)
    return F.avg_pool2d(rows, (1, width), stride=1, divisor_override=1)


def window_mask(index: Tensor, window: tuple[int, int], grid: Sequence[int]) -> Tensor:
    """The windows of a flat index into `box_sums` as 0/1 maps, [b] to [b 1 i j]."""
    height, width = window
    columns = grid[1] - width + 1
    top, left = (index // columns)[:, None], (index % columns)[:, None]
    row = torch.arange(grid[0], device=index.device)
    column = torch.arange(grid[1], device=index.device)
    rows = (row >= top) & (row < top + height)  # b i
    across = (column >= left) & (column < left + width)  # b j
    return (rows[:, None, :, None] & across[:, None, None, :]).float()
