"""Scores as the rules take them: integers, checked once, each with a guard band, in a type that holds their sums."""

from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.threats import Regions

Bounds = tuple[int, int]


@dataclass(frozen=True, eq=False)
class IntegerScores:
    """The scores of the network (`values`), and the least and most that each may be (`low`, `high`).

    Prediction uses `values`. A certificate counts `low` for the predicted class and `high` for its rivals, so it
    survives any change of the scores inside the guard band. Without a guard band, all three are the same tensor.
    """

    values: Tensor  # int32 or int64 [b k i j]: every sum a rule forms fits
    low: Tensor
    high: Tensor
    bounds: Bounds | None

    def __repr__(self) -> str:
        images, classes, rows, columns = self.values.shape
        within = "any numbers" if self.bounds is None else f"{self.bounds[0]}..{self.bounds[1]}"
        return f"IntegerScores({images} images, {classes} classes, {rows}x{columns}, {within})"

    @property
    def guarded(self) -> bool:
        return self.low is not self.values

    def part(self, index: slice | Tensor | tuple[Tensor, Tensor]) -> "IntegerScores":
        """The scores of some images, or of some images and classes."""
        if not self.guarded:
            values = self.values[index]
            return IntegerScores(values, values, values, self.bounds)
        return IntegerScores(self.values[index], self.low[index], self.high[index], self.bounds)

    def need_bounds(self, rule: str) -> Bounds:
        if self.bounds is None:
            raise UsageError(f"Rule '{rule}' needs bounds, but they are None. Declare bounds=(lowest, highest) score.")
        return self.bounds


def read_scores(
    scores: "Tensor | np.ndarray",
    bounds: Bounds | None = (0, 1),
    uncertain: "Tensor | np.ndarray | None" = None,
    slack: int = 0,
) -> IntegerScores:
    """Check scores [b k i j] and make them integers, without writing into the caller's array.

    `uncertain` marks 0/1 votes that count for the attacker, wherever the patch is. `slack=e` says that each fixed-point
    score may be off by e units, so a sum of Δ over n cells must exceed 2·e·n.
    """
    bounds = whole_bounds(bounds)
    tensor = as_tensor(scores)
    if tensor.dim() != 4 or tensor.shape[2] * tensor.shape[3] == 0:
        raise UsageError(
            f"Scores must have the shape [images, classes, rows, columns], but these have {list(tensor.shape)}. "
            "Add the missing axes (scores[None] makes a batch of one)."
        )
    if tensor.shape[1] < 2:
        raise UsageError(f"The number of classes is {tensor.shape[1]}. Give at least 2: a single class has no rival.")
    values = to_integers(tensor, bounds)
    least, most = extremes(values)
    if values.numel():
        check_bounds(least, most, bounds)
    if not isinstance(slack, Integral) or slack < 0:
        raise UsageError(f"The slack must be a whole number of score units >= 0, but is {slack}. Round it up.")
    slack = int(slack)
    values = values.to(fitting_type(values.shape[2] * values.shape[3], max(-least, most), bounds, slack))
    if uncertain is not None:
        if bounds != (0, 1) or slack:
            raise UsageError("Only votes with bounds=(0, 1) and no slack can be uncertain. Use slack instead.")
        doubt = as_tensor(uncertain, "Flags").to(values.device)
        if doubt.dtype != torch.bool or doubt.shape != values.shape:
            raise UsageError(
                f"The flags in uncertain must be booleans of shape {list(values.shape)}, but are {doubt.dtype} "
                f"{list(doubt.shape)}. Mark each vote."
            )
        return IntegerScores(values, values.masked_fill(doubt, 0), values.masked_fill(doubt, 1), bounds)
    if slack:
        return IntegerScores(values, values - slack, values + slack, bounds)
    return IntegerScores(values, values, values, bounds)


def as_tensor(scores: "Tensor | np.ndarray", what: str = "Scores") -> Tensor:
    """A tensor unchanged; an array as a copy."""
    if isinstance(scores, Tensor):
        return scores
    try:
        return torch.from_numpy(np.array(scores))
    except (TypeError, ValueError) as error:
        kind = scores.dtype if isinstance(scores, np.ndarray) else type(scores).__name__
        raise UsageError(
            f"{what} must be a tensor or an array of numbers, but are {kind}. Convert them by np.array(scores, float)."
        ) from error


def whole_bounds(bounds: Bounds | None) -> Bounds | None:
    """The same bounds as Python integers, since NumPy's overflow."""
    if bounds is None:
        return None
    numbers = [bound for bound in bounds if isinstance(bound, Integral)] if isinstance(bounds, tuple | list) else []
    if len(numbers) != 2 or len(bounds) != 2 or numbers[0] >= numbers[1]:
        raise UsageError(f"Bounds must be two whole numbers, lowest first, but are {bounds}. For votes use (0, 1).")
    return int(numbers[0]), int(numbers[1])


def to_integers(scores: Tensor, bounds: Bounds | None) -> Tensor:
    """The same numbers as integers; refuses what is not a whole number."""
    if scores.is_complex():
        raise UsageError(f"Scores must be real, but are {scores.dtype}. Take the real part or the magnitude.")
    if scores.is_floating_point():
        if not bool(torch.isfinite(scores).all()):
            raise UsageError("The scores contain NaN or infinity. Check the network's output.")
        if not bool((scores == scores.round()).all()):
            kind = "votes of 0 or 1" if bounds == (0, 1) else "whole numbers"
            raise UsageError(
                f"Scores must be {kind}, but some are fractions. Round them to a fixed-point grid, "
                "(scores * 256).round(), and declare their bounds."
            )
    small = scores.dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32)
    values = scores.to(torch.int32 if small else torch.int64)
    if scores.dtype == torch.uint64 and bool((values < 0).any()):
        raise UsageError("Some unsigned scores are 2**63 or more. Use a coarser fixed-point grid.")
    return values


def check_bounds(least: int, most: int, bounds: Bounds | None) -> None:
    if bounds is not None and not (bounds[0] <= least and most <= bounds[1]):
        raise UsageError(
            f"Scores must lie in {bounds[0]}..{bounds[1]}, but these are in {least}..{most}. "
            "Declare their bounds, or bounds=None for two-mask."
        )


def fitting_type(positions: int, seen: int, bounds: Bounds | None, slack: int) -> torch.dtype:
    """A type that holds every sum that a rule forms of scores up to ±`seen`. In float64 such sums are exact too.

    A Δ doubles a score, a difference of two sums of Δ doubles it again, and one more doubling is to spare. int32 is 4x
    faster than int64 (two cores). Everything that involves the bounds is computed in int64.
    """
    cells = 8 * positions
    largest = max([seen, *(abs(bound) for bound in bounds or ())]) + slack
    if largest * cells >= 2**53:
        raise UsageError(
            f"Scores must lie within ±{2**53 // cells}, but reach {largest}. Use a coarser fixed-point grid."
        )
    return torch.int32 if (seen + slack) * cells < 2**31 else torch.int64


def extremes(values: Tensor) -> tuple[int, int]:
    """The least and the largest value; zeros if there are none."""
    if not values.numel():
        return 0, 0
    least, most = values.aminmax()
    return int(least), int(most)


def sums(scores: Tensor) -> Tensor:
    """Sums over all positions, [b k], in the type of the scores: `read_scores` chose one that holds them."""
    return scores.sum(dim=(-2, -1), dtype=scores.dtype)


def outside(scores: Tensor, regions: Regions) -> Tensor:
    """Sums over the positions outside each region, [b k n]."""
    return sums(scores)[..., None] - regions.sums(scores)
