"""Plain, slow versions of every rule, written from their definitions with Python integers and sets, for comparison.

Nothing here shares code with the package: a region is a frozenset of cells, a score map a nested list.
"""

import itertools
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import floor

Cell = tuple[int, int]
Region = frozenset[Cell]
Map = list[list[list[int]]]  # class, row, column
Inference = Callable[[Map], int]


def dilated_regions(grid: tuple[int, int], patch: tuple[int, int], receptive_field: int) -> list[Region]:
    """R(l) of every placement at stride 1: the outputs within (receptive_field - 1) / 2 of a patch pixel."""
    reach = receptive_field // 2
    found = []
    for top in range(grid[0] - patch[0] + 1):
        for left in range(grid[1] - patch[1] + 1):
            pixels = itertools.product(range(top, top + patch[0]), range(left, left + patch[1]))
            found.append(
                frozenset(
                    (i, j)
                    for y, x in pixels
                    for i in range(max(0, y - reach), min(grid[0], y + reach + 1))
                    for j in range(max(0, x - reach), min(grid[1], x + reach + 1))
                )
            )
    return found


def maximal(regions: list[Region]) -> list[Region]:
    distinct = list(dict.fromkeys(regions))
    return [region for region in distinct if not any(region < other for other in distinct)]


def cells(scores: Map) -> list[Cell]:
    return list(itertools.product(range(len(scores[0])), range(len(scores[0][0]))))


def total(scores: Map, label: int, without: Region = frozenset()) -> int:
    return sum(scores[label][i][j] for i, j in cells(scores) if (i, j) not in without)


def first_best(values: list[int]) -> int:
    return values.index(max(values))


def plain(scores: Map) -> int:
    return first_best([total(scores, label) for label in range(len(scores))])


def aggregated(scores: Map, aggregate: Callable[[list[int]], int]) -> int:
    return first_best([aggregate([label[i][j] for i, j in cells(scores)]) for label in scores])


def winner(scores: Map, without: Region) -> int:
    return first_best([total(scores, label, without) for label in range(len(scores))])


def consistent(scores: Map, masks: list[Region]) -> set[int]:
    """Every class that, under some first mask, wins with every second one."""
    found = set()
    for first in masks:
        winners = {winner(scores, first | second) for second in masks}
        if len(winners) == 1:
            found |= winners
    return found


def two_mask(scores: Map, masks: list[Region]) -> int:
    found = consistent(scores, masks)
    assert len(found) <= 1, "two consistent classes"
    return found.pop() if found else plain(scores)


def masked(scores: Map, masks: list[Region], threshold: Fraction) -> int:
    kept = []
    for label in range(len(scores)):
        whole = total(scores, label)
        heaviest = max(whole - total(scores, label, mask) for mask in masks)
        kept.append(whole - heaviest if heaviest > threshold * whole else whole)
    return first_best(kept)


def attacked_maps(scores: Map, region: Region, values: tuple[int, ...]) -> Iterator[Map]:
    """Every map that differs from this one inside the region only, with scores from `values`."""
    places = [(label, i, j) for label in range(len(scores)) for i, j in sorted(region)]
    for choice in itertools.product(values, repeat=len(places)):
        changed = [[list(row) for row in label] for label in scores]
        for (label, i, j), value in zip(places, choice, strict=True):
            changed[label][i][j] = value
        yield changed


def pair_lead(scores: Map, predicted: int, masks: list[Region]) -> int:
    """The certificate's left side: the least Σ Δ outside any two masks over all rivals."""
    return min(
        total(scores, predicted, first | second) - total(scores, rival, first | second)
        for rival in range(len(scores))
        if rival != predicted
        for first in masks
        for second in masks
    )


def region_lead(scores: Map, predicted: int, regions: list[Region], width: int = 1) -> int:
    return min(
        total(scores, predicted, region) - total(scores, rival, region) - width * len(region)
        for rival in range(len(scores))
        if rival != predicted
        for region in regions
    )


def largest_lead(scores: Map, predicted: int, regions: list[Region], width: int = 1) -> int:
    largest = max(len(region) for region in regions)
    return min(
        total(scores, predicted) - total(scores, rival) - 2 * width * largest
        for rival in range(len(scores))
        if rival != predicted
    )


def guarded(low: Map, high: Map, predicted: int) -> Map:
    """The worst map inside a guard band: the least for the predicted class, the most for its rivals."""
    return [low[label] if label == predicted else high[label] for label in range(len(low))]


def covered_lead(scores: Map, predicted: int, regions: list[Region], masks: list[Region]) -> int:
    """Every region takes the best mask that holds it; that mask leaves the least over second masks and rivals."""
    under = {
        first: min(
            total(scores, predicted, first | second) - total(scores, rival, first | second)
            for second in masks
            for rival in set(range(len(scores))) - {predicted}
        )
        for first in masks
    }
    return min(max(under[mask] for mask in masks if region <= mask) for region in regions)


def masked_lead(
    scores: Map, predicted: int, regions: list[Region], masks: list[Region], threshold: Fraction, every: bool = False
) -> int:
    """PatchGuard's lemma; `every` counts every mask, as a guard band must."""
    leads = []
    for region in regions:
        clean = total(scores, predicted, region)
        windows = [(mask, clean - total(scores, predicted, region | mask)) for mask in masks]
        lost = [window for mask, window in windows if every or mask & region or window > threshold * clean]
        for rival in set(range(len(scores))) - {predicted}:
            most = total(scores, rival, region) / (1 - threshold)
            leads.append(clean - max(0, *lost, 0) - floor(most))
    return min(leads)


def monotone_lead(
    scores: Map, predicted: int, regions: list[Region], bounds: tuple[int, int], aggregate: Callable[[list[int]], int]
) -> int:
    def worst(label: int, region: Region) -> int:
        bound = bounds[0] if label == predicted else bounds[1]
        return aggregate([bound if (i, j) in region else scores[label][i][j] for i, j in cells(scores)])

    rivals = set(range(len(scores))) - {predicted}
    return min(worst(predicted, region) - worst(rival, region) for region in regions for rival in rivals)


def single_lead(scores: Map, predicted: int, mask: Region) -> int:
    """The least lead of the predicted class over any other outside one mask."""
    rivals = set(range(len(scores))) - {predicted}
    return min(total(scores, predicted, mask) - total(scores, rival, mask) for rival in rivals)


def alerted(scores: Map, predicted: int, masks: list[Region], above: int) -> bool:
    """Does another class lead the predicted one by more than that outside some mask?"""
    return any(
        total(scores, label, mask) - total(scores, predicted, mask) > above
        for mask in masks
        for label in range(len(scores))
    )
