"""The exponent of a curve that is a power law at its upper end, and how sure it is."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEAST = 3  # points of a fit
SURE = 2.0  # uncertainties by which an exponent must be above the stated one
CACHES = 1.5  # times that the same work may cost at the largest size of a fit: it falls out of caches


@dataclass(frozen=True)
class Fit:
    """cost ~ size^exponent over the upper half of a curve.

    The uncertainty is the larger of two: how far the exponents of single repeats lie apart, and how far the points lie
    from a line (the standard error of its slope).
    """

    exponent: float
    uncertainty: float
    smallest: int
    largest: int

    def exceeds(self, stated: float) -> bool:
        """Does the cost surely grow faster than stated, and by more than the caches of a machine explain?"""
        explained = math.log(CACHES) / math.log(self.largest / self.smallest)
        return self.exponent - SURE * self.uncertainty > stated + explained


def upper_half(sizes: Sequence[int]) -> slice:
    """The largest half of the sizes, at least three if there are so many: small ones measure fixed costs."""
    return slice(max(0, len(sizes) - max(LEAST, -(-len(sizes) // 2))), len(sizes))


def slope(sizes: Sequence[int], costs: Sequence[float]) -> tuple[float, float]:
    """The least-squares slope of log cost over log size, and its standard error."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    middle, height = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - middle) ** 2 for x in xs)
    found = sum((x - middle) * (y - height) for x, y in zip(xs, ys, strict=True)) / spread
    off = sum((y - height - found * (x - middle)) ** 2 for x, y in zip(xs, ys, strict=True))
    return found, math.sqrt(off / (len(xs) - 2) / spread) if len(xs) > 2 else 0.0


def fitted(sizes: Sequence[int], repeats: Sequence[Sequence[float]]) -> Fit | None:
    """The fit to the least cost of each size, given the costs of each size's repeats; None for too few sizes."""
    if len(sizes) < LEAST:
        return None
    upper = upper_half(sizes)
    chosen, costs = sizes[upper], repeats[upper]
    exponent, error = slope(chosen, [min(each) for each in costs])
    single = [slope(chosen, each)[0] for each in zip(*costs, strict=True)]
    return Fit(exponent, max(error, (max(single) - min(single)) / 2), chosen[0], chosen[-1])
