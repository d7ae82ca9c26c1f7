"""The rules as graphs: from integer scores to class, lead and weakest place, by the formulas of `bagcert.rules`."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bagcert.onnx.graph import Graph, Value
from bagcert.onnx.region_sums import RegionSums
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class ScoreValues:
    """Scores [b k i j] in a graph, and the least and most that each may be; without a guard band all three are one."""

    values: Value
    low: Value
    high: Value


class Verdict(NamedTuple):
    """For each image: the class, what is left of its lead, and the number of the weakest region."""

    predicted: Value  # int64 [b]
    lead: Value  # [b]
    place: Value  # int64 [b]


def largest_region(
    graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]
) -> Verdict:
    """Condition 3.3: `bagcert.rules.LargestRegion`."""
    size, place = regions.sizes.max(dim=0)
    sums = RegionSums(graph, regions)
    predicted = graph.first("ArgMax", sums.total(scores.values), 1)
    most = graph.wider(sums.total(scores.high), -1)  # b k 1: one region, the largest
    least = graph.wider(sums.total(scores.low), -1)
    taken = 2 * (bounds[1] - bounds[0]) * int(size)
    lead, rival = weakest(graph, lead_over_rivals(graph, least, most, predicted, classes) - taken, classes)
    return Verdict(predicted, lead, rival % np.array(1) + np.array(int(place)))  # the same place for every image


def every_region(graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]) -> Verdict:
    """Condition 3.2: `bagcert.rules.EveryRegion`."""
    sums = RegionSums(graph, regions)
    predicted = graph.first("ArgMax", sums.total(scores.values), 1)
    most = sums.outside(scores.high, rank=4)  # b k n
    least = most if scores.low is scores.high else sums.outside(scores.low, rank=4)
    taken = ((bounds[1] - bounds[0]) * regions.sizes).numpy().astype(graph.integer)
    leads = lead_over_rivals(graph, least, most, predicted, classes) - taken
    lead, place = weakest(graph, leads, classes * len(regions))
    return Verdict(predicted, lead, place % np.array(len(regions)))


def lead_over_rivals(graph: Graph, least: Value, most: Value, predicted: Value, classes: int) -> Value:
    """What the predicted class has at least, less what each class has at most, [b k n]; far ahead of itself."""
    own = graph.op("GatherND", least, graph.wider(predicted, -1), batch_dims=1)  # b n
    itself = np.arange(classes)[None, :, None]
    far = int(np.iinfo(graph.integer).max // 2)  # half: what a patch takes is still to be subtracted
    return graph.op("Where", graph.wider(predicted, -1, -2).equals(itself), far, graph.wider(own, 1) - most)


def weakest(graph: Graph, leads: Value, cells: int) -> tuple[Value, Value]:
    """The least of leads [b k n] over rivals and regions, and where it is in [b kn]."""
    flat = graph.shaped(leads, 0, cells)
    return graph.reduce("ReduceMin", flat, 1), graph.first("ArgMin", flat, 1)
