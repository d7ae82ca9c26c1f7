"""A defense as one ONNX graph, from pixels to certificates: what runs it needs nothing of ours."""

import json
from collections.abc import Mapping

import onnx
from onnx import compose, helper

from bagcert.defense import Defense
from bagcert.onnx.certificate import IR_VERSION, ScoreKind, certificate_model
from bagcert.onnx.guard import GuardBand
from bagcert.onnx.network import Scored, network_model
from bagcert.onnx.pixels import PROBLEMS


def export_defense(defense: Defense, guard: GuardBand, facts: Mapping[str, str], channels: int = 3) -> onnx.ModelProto:
    """Network and rule in one graph. `facts` are added to its metadata: digest of the weights, version.

    Input `images` [n c h w], float32 in 0..1; outputs for each of the n images as `OUTPUTS` says. An image with a pixel
    that is not finite or lies outside 0..1 gets class -1 and no certificate, and `problem` says why; the other images
    keep their answers.
    """
    scorer, step = defense.scorer, defense.scorer.step
    guard.check(step)
    kind = ScoreKind(len(defense.classes), step.bounds, guard.slack, guarded=bool(guard))
    certificate = certificate_model(defense.rule, defense.regions, kind)  # first: it may refuse, and is quick
    outputs = [name.replace("rule", "network") for name in kind.inputs]
    network = network_model(Scored(scorer, guard), channels, scorer.footprint.image_size, outputs)
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
        "threat_in_words": defense.threat.describe(),
        "rule": defense.rule.name,
        "classes": json.dumps(list(defense.classes)),
        "guard_band": str(guard),
        "problems": json.dumps(PROBLEMS),
        "scores": f"{step.name}, {step.unit} stands for 1.0, within {step.bounds[0]}..{step.bounds[1]}",
    }
