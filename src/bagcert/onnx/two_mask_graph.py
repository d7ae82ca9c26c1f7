"""Double masking as a graph: `bagcert.rules.TwoMask`, exact, one image at a time.

All pairs of masks would be two million sums an image. The graph searches what can matter, as the rule does: the rows
(rival, first mask) that a second mask might bring below the least lead known are picked by NonZero, and only those are
searched over all second masks. Running image by image bounds what is held by the rows of one image.
"""

import numpy as np

from bagcert.onnx.graph import Graph, Operand, Value
from bagcert.onnx.region_sums import RegionSums
from bagcert.onnx.rule_graphs import ScoreValues, Verdict
from bagcert.threats import Regions


def two_mask(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]) -> Verdict:
    """The consistent class, and the least Σ Δ outside any two masks. No bound on the scores is used."""
    masks = RegionSums(graph, regions)
    guarded = scores.low is not scores.values
    stacks = [scores.values, scores.low, scores.high] if guarded else [scores.values]

    def run(maps: list[Value]) -> list[Value]:
        values, low, high = maps if guarded else maps * 3
        predicted = consistent_class(graph, masks, values)
        return [predicted, *least_lead(graph, masks, predicted, low, high, classes)]

    shape = (classes, *regions.grid)
    return Verdict(*graph.for_each(stacks, run, shape, (np.int64, graph.integer, np.int64)))


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
    always = graph.cast(graph.reduce("ReduceMin", graph.cast(wins, np.int32), -1), np.bool_)
    consistent = graph.op("Compress", challenger, always, axis=0)  # one class at most, from however many masks
    return graph.op("Gather", joined(graph, consistent, plain), np.array(0), axis=0)


def least_lead(
    graph: Graph, masks: RegionSums, predicted: Value, low: Value, high: Value, classes: int
) -> tuple[Value, Value]:
    """The least lead of one image over rivals and pairs of masks, and the first mask where it is.

    A second mask takes away at most the heaviest window of Δ⁺. Where a lead under one mask is larger by more than that
    than what one greedy pair leaves, no second mask matters.
    """
    delta = graph.op("Gather", low, predicted, axis=0) - high  # k i j
    itself = graph.wider(predicted, 0, 1).equals(np.arange(classes)[:, None])
    leads = graph.op("Where", itself, int(np.iinfo(graph.integer).max), masks.outside(delta, rank=3))  # k n
    heaviest = graph.reduce("ReduceMax", masks.inside(graph.op("Max", delta, 0), rank=3), -1, keep=True)
    under = graph.reduce("ReduceMin", leads, 0)  # n: what each first mask leaves, so far without a second one

    rival = graph.wider(graph.first("ArgMin", graph.reduce("ReduceMin", leads, 1), 0), 0)
    first = graph.wider(graph.first("ArgMin", under, 0), 0)
    greedy = least_outside_pairs(graph, masks, graph.op("Gather", delta, rival, axis=0), first)

    in_doubt = graph.op("NonZero", (leads - heaviest).below(graph.op("Min", under, greedy + 1)))  # 2 r
    rival = joined(graph, graph.op("Gather", in_doubt, np.array(0), axis=0), rival)
    first = joined(graph, graph.op("Gather", in_doubt, np.array(1), axis=0), first)
    least = least_outside_pairs(graph, masks, graph.op("Gather", delta, rival, axis=0), first)
    under = graph.op("ScatterElements", under, first, least, axis=0, reduction="min")
    return graph.reduce("ReduceMin", under, 0), graph.first("ArgMin", under, 0)


def least_outside_pairs(graph: Graph, masks: RegionSums, maps: Value, first: Value) -> Value:
    """For maps [r i j], each with its first mask: the least sum outside that and any second mask, [r]."""
    left = masks.outside(graph.op("Where", masks.masks(first), 0, maps), rank=3)  # r n
    return graph.reduce("ReduceMin", left, -1)


def joined(graph: Graph, rows: Value, spare: Operand) -> Value:
    """Rows [r] and one to spare: onnxruntime 1.31 gives sums over an empty list of maps a wrong shape."""
    return graph.op("Concat", rows, spare, axis=0)
