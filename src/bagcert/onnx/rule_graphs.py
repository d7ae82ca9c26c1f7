"""The rules as graphs: from integer scores to class, lead and weakest region, by the formulas of `bagcert.rules`.

Double masking is exact, one image at a time. All pairs of masks would be two million sums per image. The graph searches
what can matter, as the rule does: the rows (rival, first mask) that a second mask might bring below the least lead
known are picked by NonZero, and only those are searched over all second masks. Running image by image keeps only the
rows of one image in memory. Two patches at once are searched for by the same graph.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bagcert.onnx.graph import Graph, Operand, Value
from bagcert.onnx.region_sums import RegionSums
from bagcert.rules import Detect, EveryRegion, LargestRegion, TwoMask
from bagcert.rules.sums import largest_union
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class ScoreValues:
    """Scores [b k i j] in a graph, and the least and most that each may be; without a guard band all three are one."""

    values: Value
    low: Value
    high: Value


class RuleAnswers(NamedTuple):
    """For each image: the class, what is left of its lead, and the number of the weakest region."""

    predicted: Value  # int64 [b]
    lead: Value  # [b]
    place: Value  # int64 [b]


def largest_region(
    graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]
) -> RuleAnswers:
    """Condition 3.3: `bagcert.rules.LargestRegion`."""
    size, place, _ = largest_union(regions)
    sums = RegionSums(graph, regions)
    predicted = graph.first("ArgMax", sums.total(scores.values), 1)
    most = graph.wider(sums.total(scores.high), -1)  # b k 1: one region, the largest
    least = graph.wider(sums.total(scores.low), -1)
    taken = 2 * (bounds[1] - bounds[0]) * size
    lead, rival = weakest(graph, lead_over_rivals(graph, least, most, predicted, classes) - taken, classes)
    return RuleAnswers(predicted, lead, rival % np.array(1) + np.array(place))  # the same region for every image


def every_region(
    graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]
) -> RuleAnswers:
    """Condition 3.2: `bagcert.rules.EveryRegion`."""
    if regions.count > 1:
        return every_union(graph, scores, regions, classes, bounds[1] - bounds[0])
    sums = RegionSums(graph, regions)
    predicted = graph.first("ArgMax", sums.total(scores.values), 1)
    most = sums.outside(scores.high, rank=4)  # b k n
    least = most if scores.low is scores.high else sums.outside(scores.low, rank=4)
    taken = ((bounds[1] - bounds[0]) * regions.sizes).numpy().astype(graph.integer)
    leads = lead_over_rivals(graph, least, most, predicted, classes) - taken
    lead, place = weakest(graph, leads, classes * len(regions))
    return RuleAnswers(predicted, lead, place % np.array(len(regions)))


def every_union(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, width: int) -> RuleAnswers:
    """Condition 3.2 for several patches at once, with w = Δ + width: exact for two, a bound for more."""
    all_taken = width * regions.grid[0] * regions.grid[1]
    if regions.count == 2:
        predicted, lead, place = weakest_pair(graph, scores, regions, classes, width)
        return RuleAnswers(predicted, lead - all_taken, place)
    sums = RegionSums(graph, regions)
    predicted = graph.first("ArgMax", sums.total(scores.values), 1)
    own = graph.op("GatherND", scores.low, graph.wider(predicted, -1), batch_dims=1)  # b i j
    weights = graph.wider(own, 1) - scores.high + width  # b k i j
    heavy = sums.inside(graph.positive(weights), rank=4)  # b k n
    others = graph.op("Mul", graph.most(heavy, -1), regions.count - 1)
    left = graph.wider(sums.total(weights), -1) - heavy - others - all_taken
    itself = graph.wider(predicted, -1, -2).equals(np.arange(classes)[None, :, None])
    far = int(np.iinfo(graph.integer).max)
    lead, place = weakest(graph, graph.op("Where", itself, far, left), classes * len(regions))
    return RuleAnswers(predicted, lead, place % np.array(len(regions)))


def weakest_pair(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, width: int = 0) -> RuleAnswers:
    """The plain argmax, and the least Σ (Δ + width) outside any two regions, image by image."""
    masks = RegionSums(graph, regions)
    return image_by_image(
        graph, scores, masks, classes, lambda values: graph.first("ArgMax", masks.total(values), 0), width
    )


def image_by_image(
    graph: Graph,
    scores: ScoreValues,
    masks: RegionSums,
    classes: int,
    predict: Callable[[Value], Value],
    width: int = 0,
) -> RuleAnswers:
    """The class that `predict` finds in scores [k i j], and its least Σ (Δ + width) outside any two masks."""
    guarded = scores.low is not scores.values
    stacks = [scores.values, scores.low, scores.high] if guarded else [scores.values]

    def run(maps: list[Value]) -> list[Value]:
        values, low, high = maps if guarded else maps * 3
        predicted = predict(values)
        return [predicted, *least_lead(graph, masks, predicted, low, high, classes, width)]

    shape = (classes, *masks.regions.grid)
    return RuleAnswers(*graph.for_each(stacks, run, shape, (np.int64, graph.integer, np.int64)))


def detect(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]) -> RuleAnswers:
    """`bagcert.rules.Detect`, before its threshold: the least Σ Δ outside any mask. No bound on the scores is used."""
    if regions.count == 2:
        return weakest_pair(graph, scores, regions, classes)
    predicted = graph.first("ArgMax", RegionSums(graph, regions).total(scores.values), 1)
    under = single_leads(graph, scores.low, scores.high, regions, predicted, classes)
    return RuleAnswers(predicted, graph.least(under, 1), graph.first("ArgMin", under, 1))


def single_leads(graph: Graph, low: Value, high: Value, regions: Regions, predicted: Value, classes: int) -> Value:
    """The least lead of the predicted class over any other outside each mask, [b n]."""
    masks = RegionSums(graph, regions)
    most = masks.outside(high, rank=4)  # b k n
    least = most if low is high else masks.outside(low, rank=4)
    return graph.least(lead_over_rivals(graph, least, most, predicted, classes), 1)


class AlertAnswers(NamedTuple):
    """For each image: does it raise an alert, and is it detectable?"""

    raised: Value  # bool [b]
    detectable: Value  # bool [b]


def alerts(
    graph: Graph, scores: ScoreValues, regions: Regions, found: RuleAnswers, classes: int, above: int
) -> AlertAnswers:
    """`bagcert.rules.alerts`: by the scores as they are, and as the guard band allows.

    Of two patches at once, what `detect` found is the least outside any two masks, as the guard band allows.
    """

    def least(low: Value, high: Value) -> Value:
        if regions.count == 2:
            return weakest_pair(graph, ScoreValues(low, low, high), regions, classes).lead
        return graph.least(single_leads(graph, low, high, regions, found.predicted, classes), 1)

    guarded = scores.low is not scores.values
    seen = found.lead if regions.count == 2 and not guarded else least(scores.values, scores.values)
    sure = found.lead if regions.count == 2 else least(scores.low, scores.high) if guarded else seen
    seen, sure = graph.cast(seen, np.int64), graph.cast(sure, np.int64)
    return AlertAnswers(seen.below(np.array(-above)), sure.above(np.array(above)))


def lead_over_rivals(graph: Graph, least: Value, most: Value, predicted: Value, classes: int) -> Value:
    """What the predicted class has at least, less what each class has at most, [b k n]; far ahead of itself."""
    own = graph.op("GatherND", least, graph.wider(predicted, -1), batch_dims=1)  # b n
    itself = np.arange(classes)[None, :, None]
    far = int(np.iinfo(graph.integer).max // 2)  # half: what a patch takes is still to be subtracted
    return graph.op("Where", graph.wider(predicted, -1, -2).equals(itself), far, graph.wider(own, 1) - most)


def weakest(graph: Graph, leads: Value, cells: int) -> tuple[Value, Value]:
    """The least of leads [b k n] over rivals and regions, and where it is in [b kn]."""
    flat = graph.shaped(leads, 0, cells)
    return graph.least(flat, 1), graph.first("ArgMin", flat, 1)


def two_mask(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]) -> RuleAnswers:
    """The consistent class, and the least Σ Δ outside any two masks. No bound on the scores is used."""
    masks = RegionSums(graph, regions)
    return image_by_image(graph, scores, masks, classes, lambda values: consistent_class(graph, masks, values))


def consistent_class(graph: Graph, masks: RegionSums, values: Value) -> Value:
    """The prediction for one image [k i j]: the first mask's winner that wins with every second one, else the argmax.

    Only winners other than the plain argmax can change the prediction; and each must first hold its own against the
    plain argmax, which needs one map, not k.
    """
    plain = graph.wider(graph.first("ArgMax", masks.total(values), 0), 0)
    winners = graph.first("ArgMax", masks.outside(values, rank=3), 0)  # n
    others = graph.op("NonZero", graph.op("Not", winners.equals(plain)))  # 1 r
    first = graph.op("Gather", others, np.array(0), axis=0)
    challenger = joined(graph, graph.op("Gather", winners, first, axis=0), plain)
    first = joined(graph, first, np.array([0]))

    ahead = graph.op("Gather", values, challenger, axis=0) - graph.op("Gather", values, plain, axis=0)
    duel = least_outside_pairs(graph, masks, ahead, first)
    tied = graph.op("And", duel.equals(0), graph.op("LessOrEqual", challenger, plain))  # the lowest index wins
    holds = graph.op("Or", duel.above(0), tied)  # the plain argmax against itself does
    first, challenger = (graph.op("Compress", entry, holds, axis=0) for entry in (first, challenger))

    taken = graph.wider(masks.masks(first), 1)
    left = masks.outside(graph.op("Where", taken, 0, graph.wider(values, 0)), rank=4)  # r k n
    wins = graph.first("ArgMax", left, 1).equals(graph.wider(challenger, -1))
    always = graph.cast(graph.least(graph.cast(wins, np.int32), -1), np.bool_)
    consistent = graph.op("Compress", challenger, always, axis=0)  # one class at most, from however many masks
    return graph.op("Gather", joined(graph, consistent, plain), np.array(0), axis=0)


def least_lead(
    graph: Graph, masks: RegionSums, predicted: Value, low: Value, high: Value, classes: int, width: int = 0
) -> tuple[Value, Value]:
    """The least Σ (Δ + width) of one image over rivals and pairs of masks, and the first mask where it is.

    A second mask takes away at most the heaviest mask of Δ⁺. If a lead under one mask exceeds what one greedy pair
    leaves by more than that, no second mask matters.
    """
    delta = graph.op("Gather", low, predicted, axis=0) - high  # k i j
    delta = delta + width if width else delta
    itself = graph.wider(predicted, 0, 1).equals(np.arange(classes)[:, None])
    leads = graph.op("Where", itself, int(np.iinfo(graph.integer).max), masks.outside(delta, rank=3))  # k n
    heaviest = graph.most(masks.inside(graph.positive(delta), rank=3), -1)
    under = graph.least(leads, 0)  # n: what each first mask leaves, without a second one

    rival = graph.wider(graph.first("ArgMin", graph.least(leads, 1), 0), 0)
    first = graph.wider(graph.first("ArgMin", under, 0), 0)
    greedy = least_outside_pairs(graph, masks, graph.op("Gather", delta, rival, axis=0), first)

    in_doubt = graph.op("NonZero", (leads - heaviest).below(graph.smaller(under, greedy + 1)))  # 2 r
    rival = joined(graph, graph.op("Gather", in_doubt, np.array(0), axis=0), rival)
    first = joined(graph, graph.op("Gather", in_doubt, np.array(1), axis=0), first)
    least = least_outside_pairs(graph, masks, graph.op("Gather", delta, rival, axis=0), first)
    under = graph.op("ScatterElements", under, first, least, axis=0, reduction="min")
    return graph.least(under, 0), graph.first("ArgMin", under, 0)


def least_outside_pairs(graph: Graph, masks: RegionSums, maps: Value, first: Value) -> Value:
    """For maps [r i j], each with its first mask: the least sum outside that and any second mask, [r]."""
    left = masks.outside(graph.op("Where", masks.masks(first), 0, maps), rank=3)  # r n
    return graph.least(left, -1)


def joined(graph: Graph, rows: Value, spare: Operand) -> Value:
    """Rows [r] and one to spare: onnxruntime 1.31 gives sums over an empty list of maps a wrong shape."""
    return graph.op("Concat", rows, spare, axis=0)


RuleGraph = Callable[[Graph, ScoreValues, Regions, int, tuple[int, int]], RuleAnswers]
GRAPHS: dict[str, RuleGraph] = {
    LargestRegion.name: largest_region,
    EveryRegion.name: every_region,
    TwoMask.name: two_mask,
    Detect.name: detect,
}
SEVERAL = (LargestRegion.name, EveryRegion.name, Detect.name)  # their graphs know several patches at once
