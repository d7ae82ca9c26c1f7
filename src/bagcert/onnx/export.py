"""A defense as one ONNX graph, from pixels to certificates; running it needs none of our code.

Images that have a problem (`bagcert.onnx.network`) get no class and no certificate, whatever their scores are.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import compose, helper

from bagcert.config import write_config
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.onnx.graph import OPSET, Graph, Value
from bagcert.onnx.guard import GuardBand
from bagcert.onnx.network import FINE, PROBLEMS, Scored, network_model
from bagcert.onnx.rule_graphs import GRAPHS, SEVERAL, ScoreValues, alerts
from bagcert.rules import ABSTAIN, Rule
from bagcert.threats import Regions

IR_VERSION = 10  # as old as OPSET, so that any onnxruntime that knows the operators can read the file
OUTPUTS = {
    "class": "the class by the rule's own inference; -1 if the image has a problem",
    "certified": "no patch of the threat, anywhere, changes the class; false if the image has a problem",
    "answer": "the class if certified, else -1",
    "lead": "what the worst attack leaves of the lead, in score units; the least int64 if the image has a problem",
    "weakest": "where the proof is weakest: row, column, height, width in pixels, of several patches those of one; "
    "zeros if the image has a problem",
    "scores": "the score map; zeros if the image has a problem",
    "problem": "; ".join(f"{number}: {words}" for number, words in PROBLEMS.items()),
}
ALERT_OUTPUTS = {  # of rules that raise alerts
    "alert": "do not use the class; false if the image has a problem",
    "detectable": "whatever the patch, this class or an alert; false if the image has a problem",
}


@dataclass(frozen=True)
class ScoreKind:
    """What the rule knows about the scores before it sees any: classes, bounds, guard band."""

    classes: int
    bounds: tuple[int, int]
    slack: int = 0
    guarded: bool = False

    @property
    def inputs(self) -> list[str]:
        return ["rule/problem", "rule/values", *(["rule/low", "rule/high"] if self.guarded else [])]

    def integer(self, cells: int) -> "np.dtype[np.signedinteger]":
        """A type that holds every sum over this many cells, for any scores within the bounds: see `read_scores`."""
        largest = max(abs(bound) for bound in self.bounds) + self.slack
        return np.dtype(np.int32 if 8 * cells * largest < 2**31 else np.int64)


def certificate_model(rule: Rule, regions: Regions, kind: ScoreKind) -> onnx.ModelProto:
    """The model that gives what `rule.certify` gives, for images without a problem: the values of OUTPUTS."""
    if rule.name not in GRAPHS:
        raise UsageError(f"Rule '{rule.written}' cannot be exported. Choose one of {', '.join(GRAPHS)}.")
    if regions.count > 1 and rule.name not in SEVERAL:
        raise UsageError(
            f"The graph of '{rule.name}' knows one patch, but the threat has {regions.count} at once. "
            f"Export it for one patch, or with one of the rules {', '.join(SEVERAL)}."
        )
    rule.need_patches(regions)
    if rule.masks_for(regions) is not regions:
        raise UsageError("The rule's masks are not built for the threat itself. Use defense.against(patch).")
    graph = Graph(kind.integer(regions.count * regions.grid[0] * regions.grid[1]))
    problem, *maps = (graph.named(name) for name in kind.inputs)
    fine = problem.equals(np.array(FINE))
    # Without evidence neither the rule nor whoever reads the scores can prove anything.
    shown = [graph.op("Where", graph.wider(fine, 1, 2, 3), each, np.array(0, np.int32)) for each in maps]
    given = [graph.cast(each, graph.integer) for each in shown]
    scores = ScoreValues(*(given if kind.guarded else given * 3))
    found = GRAPHS[rule.name](graph, scores, regions, kind.classes, kind.bounds)
    lead = graph.cast(found.lead, np.int64)
    certified = graph.op("And", fine, lead.above(np.array(0)))
    raised: dict[str, Value] = {}
    if rule.alert_above is not None:
        told = alerts(graph, scores, regions, found, kind.classes, rule.alert_above)
        raised = {"alert": graph.op("And", fine, told.raised), "detectable": graph.op("And", fine, told.detectable)}
        if rule.detects:  # the class may change, so nothing is certified; the lead counts from the threshold
            lead, certified = lead - np.array(rule.alert_above), graph.op("And", fine, graph.op("Not", fine))
    weakest = graph.op("Gather", regions.placements.numpy(), found.place, axis=0)
    results = {
        "class": graph.op("Where", fine, found.predicted, np.array(ABSTAIN)),
        "certified": certified,
        "answer": graph.op("Where", certified, found.predicted, np.array(ABSTAIN)),
        "lead": graph.op("Where", fine, lead, np.array(np.iinfo(np.int64).min)),
        "weakest": graph.op("Where", graph.wider(fine, 1), weakest, np.array(0)),
        "scores": shown[0],
        "problem": problem,
        **raised,
    }
    return finished(graph, kind, (kind.classes, *regions.grid), results)


def finished(graph: Graph, kind: ScoreKind, shape: tuple[int, int, int], results: dict[str, Value]) -> onnx.ModelProto:
    """The model with its inputs and outputs named, for any number of images."""
    types = {"scores": onnx.TensorProto.INT32}
    types |= dict.fromkeys(("certified", "alert", "detectable"), onnx.TensorProto.BOOL)
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
                    name,
                    types.get(name, onnx.TensorProto.INT64),
                    ["n", *shapes.get(name, [])],
                    (OUTPUTS | ALERT_OUTPUTS)[name],
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


def export_defense(defense: Defense, guard: GuardBand, facts: Mapping[str, str]) -> onnx.ModelProto:
    """Network and rule in one graph. `facts` are added to its metadata: digest of the weights, version.

    Input `images` [n c h w], float32 in 0..1; outputs for each of the n images as `OUTPUTS` says. An image with a pixel
    that is not finite or lies outside 0..1 gets class -1 and no certificate, and `problem` says why; the other images
    keep their answers.
    """
    scorer, step = defense.scorer, defense.scorer.step
    if scorer.channels is None:
        raise UsageError("A graph needs images with a known number of channels, but this network takes any number.")
    guard.check(step)
    kind = ScoreKind(len(defense.classes), step.bounds, guard.slack, guarded=bool(guard))
    certificate = certificate_model(defense.rule, defense.regions, kind)  # first: it may refuse, and is quick
    outputs = [name.replace("rule", "network") for name in kind.inputs]
    network = network_model(Scored(scorer, guard), scorer.channels, scorer.footprint.image_size, outputs)
    network.ir_version = IR_VERSION
    model = compose.merge_models(network, certificate, io_map=list(zip(outputs, kind.inputs, strict=True)))
    helper.set_model_props(model, {**metadata(defense, guard), **facts})
    onnx.checker.check_model(model)
    return model


def metadata(defense: Defense, guard: GuardBand) -> dict[str, str]:
    """What a certificate of this graph means."""
    step = defense.scorer.step
    return {
        "threat": str(defense.threat),
        "framing": json.dumps(write_config(defense.framing)),
        "threat_in_words": defense.threat.describe(),
        "rule": defense.rule.written,
        "classes": json.dumps(list(defense.classes)),
        "guard_band": str(guard),
        "problems": json.dumps(PROBLEMS),
        "scores": f"{step.name}, {step.unit} stands for 1.0, within {step.bounds[0]}..{step.bounds[1]}",
    }
