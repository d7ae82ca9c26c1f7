"""Weights in few bytes: matrices as 8-bit integers with a scale for each output, everything else as float16."""

from collections.abc import Mapping

import torch
from torch import Tensor

from bagcert.errors import UsageError

SCALE = ":scale"  # after the name of a matrix; no parameter's name has a colon
LEVELS = 127


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are stored. Certificates are those of the weights that come back, not of these."""
    stored: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if not value.is_floating_point():
            stored[name] = value
        elif is_matrix(value):
            largest = value.float().abs().flatten(1).amax(dim=1)
            scale = (largest / LEVELS).clamp(min=1e-30)
            stored[name] = (value.float() / per_output(scale, value)).round().char()
            stored[name + SCALE] = scale
        else:
            stored[name] = value.half()
    if not all(bool(value.isfinite().all()) for value in stored.values() if value.is_floating_point()):
        raise UsageError("expected finite weights within float16, got others; train again with a smaller learning rate")
    return stored


def restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse, but for what rounding took; tensors that were stored whole stay as they are."""
    scales = {name.removesuffix(SCALE): value for name, value in stored.items() if name.endswith(SCALE)}
    matrices = {name: value for name, value in stored.items() if value.dtype == torch.int8}
    fits = scales.keys() == matrices.keys() and all(
        scale.shape == matrices[name].shape[:1] and bool(scale.isfinite().all()) for name, scale in scales.items()
    )
    if not fits:
        raise UsageError("expected a scale for each output of each 8-bit matrix, got others; copy the model again")
    return {
        name: value.float() * per_output(scales[name], value) if name in scales else value
        for name, value in stored.items()
        if not name.endswith(SCALE)
    }


def is_matrix(value: Tensor) -> bool:
    """A layer's weights, [outputs, inputs, ...], or learned positions, [features i j]; no mean or bias."""
    return value.dim() > 1 and value.shape[0] > 1 and value.numel() > 0


def per_output(scale: Tensor, value: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (value.dim() - 1))
