"""A rule built for its regions as one ONNX model: integer scores in, certificates out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from bagcert.deploy.graph import OPSET, Graph, Value
from bagcert.deploy.rule_graphs import ScoreValues, Verdict, every_region, largest_region
from bagcert.deploy.two_mask_graph import two_mask
from bagcert.errors import UsageError
from bagcert.rules import ABSTAIN, EveryRegion, LargestRegion, Rule, TwoMask
from bagcert.threats import Regions

IR_VERSION = 10  # the one of OPSET's time, so that any onnxruntime that knows the operators reads the file
RuleGraph = Callable[[Graph, ScoreValues, Regions, int, tuple[int, int]], Verdict]
RULE_GRAPHS: dict[str, RuleGraph] = {
    LargestRegion.name: largest_region,
    EveryRegion.name: every_region,
    TwoMask.name: two_mask,
}


@dataclass(frozen=True)
class ScoreKind:
    """What the rule is told of the scores before it sees any: classes, bounds, guard band."""

    classes: int
    bounds: tuple[int, int]
    slack: int = 0
    guarded: bool = False

    @property
    def inputs(self) -> list[str]:
        return ["rule/values", "rule/low", "rule/high"] if self.guarded else ["rule/values"]

    def integer(self, cells: int) -> "np.dtype[np.signedinteger]":
        """A type that holds every sum over so many cells, for any scores within the bounds: see `read_scores`."""
        largest = max(abs(bound) for bound in self.bounds) + self.slack
        return np.dtype(np.int32 if 8 * cells * largest < 2**31 else np.int64)


def certificate_model(rule: Rule, regions: Regions, kind: ScoreKind) -> onnx.ModelProto:
    """The model that gives what `rule.certify` gives: class, certified, answer, lead, weakest place; and the scores."""
    if rule.name not in RULE_GRAPHS:
        raise UsageError(
            f"expected a rule in {', '.join(RULE_GRAPHS)} to export, got '{rule.name}'; choose one of these"
        )
    if isinstance(rule, TwoMask) and rule.masks is not None and rule.masks is not regions:
        raise UsageError("expected masks built for the threat itself, got others; use defense.against(patch)")
    graph = Graph(kind.integer(regions.grid[0] * regions.grid[1]))
    given = [graph.cast(graph.named(name), graph.integer) for name in kind.inputs]
    scores = ScoreValues(*(given if kind.guarded else given * 3))
    verdict = RULE_GRAPHS[rule.name](graph, scores, regions, kind.classes, kind.bounds)
    certified = verdict.lead.above(0)
    results = {
        "class": verdict.predicted,
        "certified": certified,
        "answer": graph.op("Where", certified, verdict.predicted, np.array(ABSTAIN)),
        "lead": graph.cast(verdict.lead, np.int64),
        "weakest": graph.op("Gather", regions.placements.numpy(), verdict.place, axis=0),
        "scores": graph.named(kind.inputs[0]),
    }
    return finished(graph, kind, (kind.classes, *regions.grid), results)


def finished(graph: Graph, kind: ScoreKind, shape: tuple[int, int, int], results: dict[str, Value]) -> onnx.ModelProto:
    """The model with its inputs and outputs named, for any number of images."""
    types = {"certified": onnx.TensorProto.BOOL, "scores": onnx.TensorProto.INT32}
    shapes: dict[str, list[int]] = {"weakest": [4], "scores": list(shape)}
    for name, value in results.items():
        graph.nodes.append(helper.make_node("Identity", [value.name], [name]))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "certificate",
            [helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["n", *shape]) for name in kind.inputs],
            [
                helper.make_tensor_value_info(
                    name, types.get(name, onnx.TensorProto.INT64), ["n", *shapes.get(name, [])]
                )
                for name in results
            ],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    onnx.checker.check_model(model, full_check=True)
    return model
