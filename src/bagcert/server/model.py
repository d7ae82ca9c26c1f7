"""The served model: from pixels to what its defense proves about them, and from that to the answers of `schemas`."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bagcert.audit.backends import prepare
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.program import Program
from bagcert.rules import Certificate, IntegerScores, read_scores
from bagcert.rules.largest_square import largest_square
from bagcert.server.resizing import Pixels, patch_in_original, source_range, square_in_original
from bagcert.server.schemas import Answer, Original, Rectangle
from bagcert.tensors import Images
from bagcert.threats import Threat, parse_threat
from bagcert.threats.threat import Placement, Size


@dataclass(frozen=True, eq=False)
class PictureResult:
    """The class of one picture and its proof, in the network's own pixels."""

    predicted: int
    certified: bool  # against the served threat
    square: int  # side of the largest proven square, up to the served threat; 0: none
    lead: int
    weakest: Placement
    second: Placement | None
    rival: int
    scores: NDArray[np.int32]  # k i j


class Model:
    """A defense and the program that computes its scores.

    By default the program is the defense's own: torch, channels_last, batches of exactly `defense.batch_size`, which
    passes `bagcert audit`. An answer is then bit for bit that of `Defense.certify`. With backend onnx, onnxruntime runs
    the network, in batches of the same size, and the same rule is applied to its scores.
    """

    def __init__(self, name: str, defense: Defense, program: Program, info: dict[str, str]) -> None:
        if defense.scorer.channels is None or not defense.threat.shapes:
            raise UsageError("Only a trained model with a rectangular patch can be served. Serve a model by its name.")
        if program.batch != defense.batch_size:
            raise UsageError(
                f"The program has batch size {program.batch}. Use {defense.batch_size}, as the model was audited."
            )
        self.name, self.defense, self.program, self.info = name, defense, program, info
        self.channels = defense.scorer.channels
        self.image_size: Size = defense.scorer.footprint.image_size
        self.score_numbers = len(defense.classes) * math.prod(defense.scorer.footprint.grid)  # in one map
        self.shapes = defense.threat.shapes
        self.square = max(min(shape) for shape in self.shapes)  # the largest square inside the threat
        sides = [side for side in range(1, self.square + 1) if (side, side) not in self.shapes]
        squares = {side: parse_threat(f"{side}x{side}", self.image_size) for side in sides}
        self._smaller = [(side, facing(defense, threat).regions) for side, threat in squares.items()]
        self.scores = defense.scores if program.backend == "torch" else onnx_scores(defense, program, self.channels)

    def answer(self, pictures: list[Pixels]) -> list[PictureResult]:
        """The result for each picture; all must have the network's size."""
        return self.answer_from_scores(self.scores(to_images(pictures)))

    def answer_from_scores(self, scores: IntegerScores) -> list[PictureResult]:
        """The same from scores. They are integers, so threads and batches change nothing here."""
        found = self.defense.certify_integers(scores)
        assert found.lead is not None and found.weakest_region is not None and found.weakest_class is not None
        squares = self.squares(scores, found)
        return [
            PictureResult(
                predicted=int(found.predicted[index]),
                certified=bool(found.certified[index]),
                square=int(squares[index]),
                lead=int(found.lead[index]),
                weakest=Placement(*found.weakest_region[index].tolist()),
                second=None if found.second_region is None else Placement(*found.second_region[index].tolist()),
                rival=int(found.weakest_class[index]),
                scores=scores.values[index].numpy().astype(np.int32),
            )
            for index in range(len(scores.values))
        ]

    def squares(self, scores: IntegerScores, found: Certificate) -> Tensor:
        """The side of the largest square that each answer is proven against, under the rule's one set of masks.

        A certified answer is proven against every rectangle inside the threat's, hence against its largest square. For
        the others the same rule, with the masks that produced the class, certifies smaller squares.
        """
        known = torch.where(found.certified, self.square, 0)
        return largest_square(self.defense.rule, scores, self._smaller, known)


def facing(defense: Defense, threat: Threat) -> Defense:
    """The same network, rule and masks, certifying a smaller threat: `Defense.against` would make other masks."""
    regions = defense.scorer.footprint.regions(threat).maximal()
    return Defense(defense.scorer, defense.rule, threat, regions, defense.classes, defense.batch_size)


def to_images(pictures: list[Pixels]) -> Images:
    """float32 [b c h w] in 0..1, exactly as data sets convert the same bytes."""
    stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
    return stacked.float() / torch.full((), 255.0)


def onnx_scores(defense: Defense, program: Program, channels: int) -> Callable[[Images], IntegerScores]:
    """Scores by onnxruntime: the same score step turns its logits into integers."""
    if defense.scorer.views:
        raise UsageError(
            "Backend onnx needs a network that scores in one pass, but this one scores views. Use --backend torch."
        )
    run, step = prepare(program, defense.scorer, channels), defense.scorer.step
    return lambda images: read_scores(step.fixed(run(images)), step.bounds)


def to_answer(model: Model, found: PictureResult, original: Size, scores: bool, fail_safe: bool) -> Answer:
    """The answer to one picture that was sent at size `original`.

    In fail-safe mode the class is given only if it is proven, and in the picture's own pixels, too: if resizing
    spreads every single pixel beyond the patch, nothing is proven about the picture that was sent.
    """
    seen = to_original(model, found, original)
    given = not fail_safe or (found.certified and seen.square > 0)
    return Answer(
        class_index=found.predicted if given else None,
        name=model.defense.classes[found.predicted] if given else None,
        certified=found.certified,
        square=found.square,
        lead=found.lead,
        rival=model.defense.classes[found.rival],
        weakest=to_rectangle(found.weakest),
        second=None if found.second is None else to_rectangle(found.second),
        original=seen,
        scores=found.scores.tolist() if scores else None,
    )


def to_original(model: Model, found: PictureResult, original: Size) -> Original:
    """What is proven in the pixels of the picture as it was sent."""
    threat = [patch_in_original(original, model.image_size, shape) for shape in model.shapes]
    fitting = [f"{height}x{width}" for height, width in threat if height]
    proven = (*(model.shapes if found.certified else ()), (found.square, found.square))
    (row, height), (column, width) = (
        source_range(found.weakest[axis], found.weakest[axis + 2], original[axis], model.image_size[axis])
        for axis in (0, 1)
    )
    return Original(
        height=original[0],
        width=original[1],
        resized=original != model.image_size,
        threat=",".join(dict.fromkeys(fitting)) or "none",
        square=square_in_original(original, model.image_size, proven),
        weakest=Rectangle(row=row, column=column, height=height, width=width),
    )


def to_rectangle(placement: Placement) -> Rectangle:
    return Rectangle(**placement._asdict())
