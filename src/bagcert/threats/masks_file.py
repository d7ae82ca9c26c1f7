"""Masks from a file: any sets of pixels as a threat, known by a digest of what the file holds."""

import hashlib
from pathlib import Path
from tokenize import TokenError

import numpy as np
import torch

from bagcert.errors import UsageError
from bagcert.threats.threat import RegionThreat, Size

MASKS = "masks:"  # before the digest of what a file holds
NOT_NPY = (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError)  # its header is a piece of Python


def read_masks(path: Path, image_size: Size) -> RegionThreat:
    """The threat in a .npy file of booleans [sets, height, width]; one mask alone may be [height, width].

    It is written `masks:` and 16 digits of a digest, so that rows name the very masks that they were made with.
    """
    try:
        masks = np.load(path, allow_pickle=False)
    except NOT_NPY as error:
        why = str(error) if isinstance(error, OSError) else "it must be a .npy file of booleans"
        raise UsageError(f"{path} cannot be read as masks ({why}). Write it by np.save(path, masks).") from error
    if not isinstance(masks, np.ndarray) or masks.dtype != np.bool_ or masks.ndim not in (2, 3) or 0 in masks.shape:
        kind = f"{masks.dtype} {list(masks.shape)}" if isinstance(masks, np.ndarray) else type(masks).__name__
        raise UsageError(
            f"The masks in {path} must be booleans of shape [sets, height, width], but are {kind}. "
            "Convert them by masks.astype(bool)."
        )
    masks = np.ascontiguousarray(masks if masks.ndim == 3 else masks[None])
    if masks.shape[1:] != image_size:
        raise UsageError(
            f"The masks in {path} are for images of {masks.shape[1]}x{masks.shape[2]}, but these have "
            f"{image_size[0]}x{image_size[1]}. Make them for this image size."
        )
    return RegionThreat(torch.from_numpy(masks.copy()), written=f"{MASKS}{masks_digest(masks)}")


def masks_digest(masks: np.ndarray) -> str:
    """16 hex digits that tell masks [n h w] apart."""
    shape = "x".join(map(str, masks.shape))
    return hashlib.sha256(shape.encode() + masks.tobytes()).hexdigest()[:16]
