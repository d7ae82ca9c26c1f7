"""The served model: from pixels to what its defense proves about them, and from that to the answers of `schemas`."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from bagcert.answers import Answer
from bagcert.audit.backends import prepare
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.pictures import Pixels
from bagcert.pictures.framing import to_unit
from bagcert.program import Program
from bagcert.rules import IntegerScores, read_scores
from bagcert.server.schemas import Answer as AnswerSchema
from bagcert.server.schemas import Rectangle, RequestError
from bagcert.tensors import Images
from bagcert.threats import Threat
from bagcert.threats.notation import shortened
from bagcert.threats.threat import Placement, Size

FAIL_SAFE_PATTERN = "^(true|false|[1-9][0-9]{0,5}x[1-9][0-9]{0,5})$"


class FramedPicture(NamedTuple):
    """A picture as the network's input, and the height and width that it had."""

    pixels: Pixels
    original: Size


class Model:
    """A defense and the backend that computes its scores.

    By torch, the program is the defense's own, and an answer is bit for bit that of `Defense.certify`. With backend
    onnx, onnxruntime runs the network, in batches of the same size, and the same rule is applied to its scores.
    """

    def __init__(self, name: str, defense: Defense, backend: str, info: dict[str, str]) -> None:
        if defense.scorer.channels is None:
            raise UsageError("Only a trained model can be served. Serve a model by its name.")
        if backend != "torch" and defense.running is not None:
            raise UsageError(f"Program {defense.running.name} runs by torch alone. Leave out --program or --backend.")
        self.name, self.defense, self.info = name, defense, info
        self.program = defense.program if backend == "torch" else Program(backend, batch=defense.batch_size)
        self.channels = defense.scorer.channels
        self.image_size: Size = defense.scorer.footprint.image_size
        self.score_numbers = len(defense.classes) * math.prod(defense.scorer.footprint.grid)  # in one map
        by_onnx = self.program.backend == "onnx"
        self.scores = onnx_scores(defense, self.program, self.channels) if by_onnx else defense.scores

    def frame(self, picture: Image.Image) -> FramedPicture:
        """An upright picture as the network's input."""
        return FramedPicture(self.defense.framing.frame(picture), (picture.height, picture.width))


def facing(defense: Defense, threat: Threat) -> Defense:
    """The same network, rule and masks, certifying a smaller threat: `Defense.against` would make other masks."""
    regions = defense.scorer.footprint.regions(threat).maximal()
    return replace(defense, threat=threat, regions=regions)


def to_images(pictures: Sequence[Pixels]) -> Images:
    """float32 [b c h w] in 0..1, exactly as data sets convert the same bytes."""
    return to_unit(torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous())


def onnx_scores(defense: Defense, program: Program, channels: int) -> Callable[[Images], IntegerScores]:
    """Scores by onnxruntime: the same score step turns its logits into integers."""
    if defense.scorer.views:
        raise UsageError(
            "Backend onnx needs a network that scores in one pass, but this one scores views. Use --backend torch."
        )
    run, step = prepare(program, defense.scorer, channels), defense.scorer.step
    return lambda images: read_scores(step.fixed(run(images)), step.bounds)


def to_answer(found: Answer, scores: bool, fail_safe: bool | Size) -> AnswerSchema:
    """The answer in the words of the contract.

    In fail-safe mode the class is given only if it is proven in the picture's own pixels: against the served threat, or
    against patches of the size that was asked for. If framing spreads every single pixel beyond the proven patch,
    nothing is proven about the picture that was sent.
    """
    given = found.proven_against(fail_safe) if isinstance(fail_safe, tuple) else found.proven or not fail_safe
    known = found.to_dict() | ({} if given else {"class": None, "name": None})
    return AnswerSchema(**known, scores=found.scores.tolist() if scores else None)


def read_fail_safe(text: str) -> bool | Size:
    """`true`, `false`, or a size that must be proven: `40x60` is height x width in the picture's own pixels."""
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(FAIL_SAFE_PATTERN, text) is None:
        known = "true, false or a size in the picture's own pixels, such as 40x60"
        raise RequestError(422, f"Cannot read fail_safe '{shortened(text)}'. Write {known}.")
    height, width = text.split("x")
    return int(height), int(width)


def to_rectangle(placement: Placement) -> Rectangle:
    return Rectangle(**placement._asdict())
