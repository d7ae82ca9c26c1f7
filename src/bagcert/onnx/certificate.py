"""A rule built for its regions as one ONNX model: integer scores in, certificates out.

Images that have a problem (`bagcert.onnx.pixels`) get no class and no certificate, whatever their scores are.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from bagcert.errors import UsageError
from bagcert.onnx.graph import OPSET, Graph, Value
from bagcert.onnx.pixels import FINE, PROBLEMS
from bagcert.onnx.rule_graphs import ScoreValues, Verdict, every_region, largest_region
from bagcert.onnx.two_mask_graph import two_mask
from bagcert.rules import ABSTAIN, EveryRegion, LargestRegion, Rule, TwoMask
from bagcert.threats import Regions

IR_VERSION = 10  # the one of OPSET's time, so that any onnxruntime that knows the operators reads the file
RuleGraph = Callable[[Graph, ScoreValues, Regions, int, tuple[int, int]], Verdict]
RULE_GRAPHS: dict[str, RuleGraph] = {
    LargestRegion.name: largest_region,
    EveryRegion.name: every_region,
    TwoMask.name: two_mask,
}
OUTPUTS = {
    "class": "the class by the rule's own inference; -1 if the image has a problem",
    "certified": "no patch of the threat, anywhere, changes the class; false if the image has a problem",
    "answer": "the class if certified, else -1",
    "lead": "what the worst attack leaves of the lead, in score units; the least int64 if the image has a problem",
    "weakest": "where the proof is weakest: row, column, height, width in pixels; zeros if the image has a problem",
    "scores": "the score map; zeros if the image has a problem",
    "problem": "; ".join(f"{number}: {words}" for number, words in PROBLEMS.items()),
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
        return ["rule/problem", "rule/values", *(["rule/low", "rule/high"] if self.guarded else [])]

    def integer(self, cells: int) -> "np.dtype[np.signedinteger]":
        """A type that holds every sum over so many cells, for any scores within the bounds: see `read_scores`."""
        largest = max(abs(bound) for bound in self.bounds) + self.slack
        return np.dtype(np.int32 if 8 * cells * largest < 2**31 else np.int64)


def certificate_model(rule: Rule, regions: Regions, kind: ScoreKind) -> onnx.ModelProto:
    """The model that gives what `rule.certify` gives, for images without a problem: the values of OUTPUTS."""
    if rule.name not in RULE_GRAPHS:
        raise UsageError(
            f"expected a rule in {', '.join(RULE_GRAPHS)} to export, got '{rule.name}'; choose one of these"
        )
    if isinstance(rule, TwoMask) and rule.masks is not None and rule.masks is not regions:
        raise UsageError("expected masks built for the threat itself, got others; use defense.against(patch)")
    graph = Graph(kind.integer(regions.grid[0] * regions.grid[1]))
    problem, *maps = (graph.named(name) for name in kind.inputs)
    fine = problem.equals(np.array(FINE))
    # Without any evidence the rule itself proves nothing, nor does whoever reads the scores.
    shown = [graph.op("Where", graph.wider(fine, 1, 2, 3), each, np.array(0, np.int32)) for each in maps]
    given = [graph.cast(each, graph.integer) for each in shown]
    scores = ScoreValues(*(given if kind.guarded else given * 3))
    verdict = RULE_GRAPHS[rule.name](graph, scores, regions, kind.classes, kind.bounds)
    certified = graph.op("And", fine, verdict.lead.above(0))
    lead = graph.cast(verdict.lead, np.int64)
    weakest = graph.op("Gather", regions.placements.numpy(), verdict.place, axis=0)
    results = {
        "class": graph.op("Where", fine, verdict.predicted, np.array(ABSTAIN)),
        "certified": certified,
        "answer": graph.op("Where", certified, verdict.predicted, np.array(ABSTAIN)),
        "lead": graph.op("Where", fine, lead, np.array(np.iinfo(np.int64).min)),
        "weakest": graph.op("Where", graph.wider(fine, 1), weakest, np.array(0)),
        "scores": shown[0],
        "problem": problem,
    }
    return finished(graph, kind, (kind.classes, *regions.grid), results)


def finished(graph: Graph, kind: ScoreKind, shape: tuple[int, int, int], results: dict[str, Value]) -> onnx.ModelProto:
    """The model with its inputs and outputs named, for any number of images."""
    types = {"certified": onnx.TensorProto.BOOL, "scores": onnx.TensorProto.INT32}
    shapes: dict[str, list[int]] = {"weakest": [4], "scores": list(shape)}
    problem, *maps = kind.inputs
    for name, value in results.items():
        graph.nodes.append(helper.make_node("Identity", [value.name], [name]))
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "certificate",
            [
                helper.make_tensor_value_info(problem, onnx.TensorProto.INT64, ["n"]),
                *(helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["n", *shape]) for name in maps),
            ],
            [
                helper.make_tensor_value_info(
                    name, types.get(name, onnx.TensorProto.INT64), ["n", *shapes.get(name, [])], OUTPUTS[name]
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
