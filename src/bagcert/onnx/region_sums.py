"""Exact sums over the regions R(l) as graph operations."""

import operator
from functools import cached_property, reduce
from math import prod

import numpy as np
import torch

from bagcert.onnx.graph import Graph, Value
from bagcert.threats import Regions
from bagcert.threats.regions import Family, Intervals


class RegionSums:
    """Sums of integer maps over each of n regions, and the regions themselves, in a graph."""

    def __init__(self, graph: Graph, regions: Regions) -> None:
        self.graph = graph
        self.regions = regions

    def total(self, maps: Value) -> Value:
        return self.graph.total(maps, -2, -1)

    def outside(self, maps: Value, rank: int) -> Value:
        """Sums of maps [... i j] with that many axes over the positions outside each region: [... n]."""
        return self.graph.wider(self.total(maps), -1) - self.inside(maps, rank)

    def inside(self, maps: Value, rank: int) -> Value:
        """Sums over each region; for rectangles by running totals along rows, then columns."""
        graph, leading = self.graph, [0] * (rank - 2)
        if not self.regions.families:
            return graph.op("MatMul", graph.shaped(maps, *leading, prod(self.regions.grid)), self._table)
        ahead = np.array([*leading, 1, 1, *leading, 0, 0])  # a zero before the first row and column
        padded = graph.op("Pad", maps, ahead)
        parts = [self._family(padded, family, leading) for family in self.regions.families]
        return parts[0] if len(parts) == 1 else graph.op("Concat", *parts, axis=-1)

    def masks(self, chosen: Value) -> Value:
        """The regions of these numbers [r] as bool [r i j]."""
        return self.graph.op("Gather", self._shared, chosen, axis=0)

    @cached_property
    def _table(self) -> Value:
        """Which positions lie in which region, to be multiplied by."""
        return self.graph.value(self.regions.masks().flatten(1).T.numpy().astype(self.graph.integer))

    @cached_property
    def _shared(self) -> Value:
        return self.graph.value(self.regions.masks().numpy())

    def _family(self, padded: Value, family: Family, leading: list[int]) -> Value:
        rows, columns = family.intervals
        sums = self._along(self._along(padded, rows, -2), columns, -1)
        flat = self.graph.shaped(sums, *leading, len(family.rows) * len(family.columns))
        return flat if family.whole else self.graph.op("Gather", flat, family.kept.numpy(), axis=-1)

    def _along(self, maps: Value, sets: Intervals, axis: int) -> Value:
        totals = self.graph.op("CumSum", maps, np.array(axis))
        pieces = [
            self.graph.op("Gather", totals, stops.numpy(), axis=axis)
            - self.graph.op("Gather", totals, starts.numpy(), axis=axis)
            for starts, stops in zip(torch.unbind(sets.starts, 1), torch.unbind(sets.stops, 1), strict=True)
        ]
        return reduce(operator.add, pieces)
