"""What a defense asks of its callers: images as its network takes them, and one name per class."""

import re
from collections.abc import Sequence
from math import isnan

import torch

from bagcert.errors import UsageError
from bagcert.scorers.base import Scorer
from bagcert.tensors import Images

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def check_images(images: Images, scorer: Scorer) -> None:
    """Refuse what is no batch of images [b c h w] of this network with pixels in [0, 1]."""
    (height, width), channels = scorer.footprint.image_size, scorer.channels
    fits = images.dim() == 4 and tuple(images.shape[2:]) == (height, width)
    if not fits or channels not in (None, images.shape[1]):
        raise UsageError(
            f"Images must have the shape [images, {channels or 'channels'}, {height}, {width}], but these have "
            f"{list(images.shape)}. Resize them, or add the missing axes."
        )
    if images.layout != torch.strided or images.is_meta:
        kind = "sparse" if images.layout != torch.strided else "without values (meta)"
        raise UsageError(f"Images must be a dense tensor, but these are {kind}. Call images.to_dense(), or load them.")
    if not images.is_floating_point():
        raise UsageError(f"Images must be floats in 0..1, but these are {images.dtype}. Divide bytes by 255.")
    if not len(images):
        raise UsageError(f"The batch has no images: its shape is {list(images.shape)}. Give at least one.")
    least, most = (float(value) for value in images.aminmax())
    if isnan(least):
        raise UsageError("Pixels must lie in 0..1, but some are NaN. Check how the images were made.")
    if not (least >= 0 and most <= 1):
        raise UsageError(
            f"Pixels must lie in 0..1, but these are in {least:g}..{most:g}. "
            "Divide bytes by 255; do not normalize, the network does that."
        )


def check_names(classes: Sequence[str], outputs: int | None) -> None:
    """Refuse names that are not one text per class of the network."""
    if isinstance(classes, str) or not isinstance(classes, Sequence) or any(type(name) is not str for name in classes):
        raise UsageError(
            f"Class names must be a list of texts, but are {classes!r:.60}. Write them like ['cat', 'dog']."
        )
    if commands := [name for name in classes if CONTROL.search(name)]:
        raise UsageError(
            f"The class name {commands[0]!r:.60} holds control characters, which a terminal would obey. Rename it."
        )
    if outputs is not None and len(classes) != outputs:
        raise UsageError(
            f"The network scores {outputs} classes, but has {len(classes)} class names. "
            "Give one name per class, in the order of its outputs."
        )
