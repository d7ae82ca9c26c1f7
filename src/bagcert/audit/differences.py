"""Two runs of scores, compared bit for bit."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Difference:
    """How many logits were compared, how many differed in any bit, and by how much at most."""

    compared: int = 0
    moved: int = 0
    largest: float = 0.0

    @staticmethod
    def between(before: Tensor, after: Tensor, where: Tensor | None = None) -> "Difference":
        """Of logits [b k i j], all or those at `where` (bool, broadcast)."""
        moved = before.view(torch.int32) != after.view(torch.int32)
        checked = torch.ones_like(moved) if where is None else where.expand_as(moved)
        moved = moved & checked
        apart = (before - after).abs().nan_to_num(nan=torch.inf)[moved]
        return Difference(int(checked.sum()), int(moved.sum()), float(apart.max()) if len(apart) else 0.0)

    def __add__(self, other: "Difference") -> "Difference":
        return Difference(self.compared + other.compared, self.moved + other.moved, max(self.largest, other.largest))
