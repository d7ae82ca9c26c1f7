"""The sets R(l) of outputs, one for each placement, and exact sums over them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from bagcert.threats.threat import Placement, Size


class Regions(ABC):
    """n sets of outputs on one grid, each with the placement of the patch that reaches it."""

    grid: Size
    placements: Tensor  # int64 [n 4]: row, column, height, width in pixels

    def __len__(self) -> int:
        return len(self.placements)

    def placement(self, index: int) -> Placement:
        return Placement(*self.placements[index].tolist())

    @property
    @abstractmethod
    def sizes(self) -> Tensor:
        """How many outputs each region holds, int64 [n]."""

    @abstractmethod
    def sums(self, maps: Tensor) -> Tensor:
        """Exact sums of integer maps [... i j] over each region: [... n]."""

    @abstractmethod
    def masks(self, index: Tensor | None = None) -> Tensor:
        """Regions, all or the chosen ones, as bool [n i j]."""

    @abstractmethod
    def maximal(self) -> "Regions":
        """The regions that lie inside no other one, each once.

        Sets compare by inclusion. Every region lies inside a maximal one, so a statement that gets harder as a region
        grows need only be checked on these.
        """

    @abstractmethod
    def to(self, device: torch.device) -> "Regions":
        """The same regions with their tables on a device; themselves where they are there already."""


@dataclass(frozen=True, eq=False)
class MaskRegions(Regions):
    """Regions of any form, as they are."""

    table: Tensor  # bool [n i j]
    placements: Tensor

    @property
    def grid(self) -> Size:  # type: ignore[override]
        return self.table.shape[1], self.table.shape[2]

    @cached_property
    def sizes(self) -> Tensor:
        return self.table.flatten(1).sum(dim=1)

    def sums(self, maps: Tensor) -> Tensor:
        # Integers in float64 add up exactly, in any order, while every partial sum stays below 2**53; the rules see
        # to that (read_scores). There is no integer matrix product on every device.
        return (maps.flatten(-2).double() @ self.table.flatten(1).T.double()).to(maps.dtype)

    def masks(self, index: Tensor | None = None) -> Tensor:
        return self.table.clone() if index is None else self.table[index]

    def maximal(self) -> "MaskRegions":
        kept = maximal_sets(self.table.flatten(1))
        return MaskRegions(self.table[kept], self.placements[kept])

    def to(self, device: torch.device) -> "MaskRegions":
        if self.table.device == device:
            return self
        return MaskRegions(self.table.to(device), self.placements.to(device))


def subsets(sets: Tensor, others: Tensor) -> Tensor:
    """Bool [sets, others]: is each set inside each other one?"""
    return sets.float() @ (~others).float().T == 0


def equals(sets: Tensor, others: Tensor) -> Tensor:
    return subsets(sets, others) & subsets(others, sets).T


def maximal_sets(sets: Tensor) -> Tensor:
    """Indices of the sets inside no other one; of equal sets the first."""
    inside = subsets(sets, sets)
    earlier = torch.ones_like(inside).tril(-1)
    beaten = inside & (~inside.T | earlier)
    return (~beaten.any(dim=1)).nonzero().flatten()
