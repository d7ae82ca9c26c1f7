"""Sums of scores over all positions, and outside regions: what every rule adds up."""

from torch import Tensor

from bagcert.threats import Regions


def sums(scores: Tensor) -> Tensor:
    """Sums over all positions, [b k], in the type of the scores: `read_scores` chose one that holds them."""
    return scores.sum(dim=(-2, -1), dtype=scores.dtype)


def outside(scores: Tensor, regions: Regions) -> Tensor:
    """Sums over the positions outside each region, [b k n]."""
    return sums(scores)[..., None] - regions.sums(scores)
