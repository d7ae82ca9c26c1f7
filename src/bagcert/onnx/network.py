"""A scorer as an ONNX model: pixels in; their problems, integer scores and guard band out.

An image has a problem, and gets no certificate, if a pixel is not finite or outside 0..1: `Defense.scores` refuses
such an image too.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import torch
from torch import Tensor, nn

from bagcert.errors import UsageError, first_line
from bagcert.onnx.graph import OPSET
from bagcert.onnx.guard import GuardBand
from bagcert.scorers.base import Scorer
from bagcert.tensors import Images

FINE, NOT_FINITE, OUTSIDE = range(3)
PROBLEMS = {FINE: "none", NOT_FINITE: "a pixel is NaN or infinite", OUTSIDE: "a pixel lies outside 0..1"}


class Scored(nn.Module):
    """What the rule takes: problems of the images, scores and, with a guard band, the least and most of each score."""

    def __init__(self, scorer: Scorer, guard: GuardBand) -> None:
        super().__init__()
        self.scorer, self.guard = scorer, guard
        self.training = False  # this module's; the scorer keeps its own mode, and is refused in training mode

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        problems = pixel_problems(images)
        images = blackened(images, problems)
        if not self.guard:
            return problems, self.scorer.integers(images)
        logits = self.scorer.logits(images)
        values = self.scorer.step.fixed(logits)
        return (problems, values, *self.guard.around(values, logits))


def pixel_problems(images: Images) -> Tensor:
    """What is wrong with each image, int64 [b]: a key of PROBLEMS."""
    finite = images.isfinite().flatten(1).all(dim=1)
    inside = ((images >= 0) & (images <= 1)).flatten(1).all(dim=1)  # false of NaN too
    return torch.where(inside, FINE, torch.where(finite, OUTSIDE, NOT_FINITE))


def blackened(images: Images, problems: Tensor) -> Images:
    """The images with black in place of those that have a problem, so that no NaN reaches the network."""
    return torch.where((problems == FINE)[:, None, None, None], images, 0.0)


def network_model(
    network: nn.Module, channels: int, image_size: tuple[int, int], outputs: list[str]
) -> onnx.ModelProto:
    """A network from `images` [n c h w] to the named outputs, for any number of images."""
    if any(module.training for module in network.modules()):
        raise UsageError("The scorer is in training mode. Call scorer.eval() first.")
    example = torch.rand(2, channels, *image_size)
    batch = ({0: torch.export.Dim("n")},)
    try:
        with quietly(), torch.no_grad():
            program = torch.onnx.export(
                network,
                (example,),
                dynamo=True,
                dynamic_shapes=batch,
                input_names=["images"],
                output_names=outputs,
                opset_version=OPSET,
                verbose=False,
            )
    except Exception as error:
        raise UsageError(f"The network cannot be exported by torch.onnx ({first_line(error)}).") from error
    assert program is not None
    model = program.model_proto
    if model.graph.input[0].type.tensor_type.shape.dim[0].HasField("dim_value"):
        raise UsageError(
            "A network must treat any number of images alike, but this one counts them. "
            "Use images.shape[0], not len(images)."
        )
    return model


@contextmanager
def quietly() -> Iterator[None]:
    """Silence the exporter's notes on packages and steps that are not needed here."""
    logs = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for log, level in zip(logs, levels, strict=True):
            log.setLevel(level)
