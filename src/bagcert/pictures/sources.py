"""What may be handed over as a picture: a path, a file, a PIL image, a NumPy array or a tensor; or a list of these.

An array or tensor has the axes [h w c], [c h w] or [h w], with bytes or with floats in 0..1. Floats of the network's
size are its input, to the last bit. Floats of any other size are rounded to 8 bits and framed like every picture;
rounding works on single pixels, so a patch stays a patch.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.pictures.framing import Framing, to_unit
from bagcert.pictures.reading import MODES, Pixels, read_file, upright
from bagcert.threats.threat import Size

OneFile = str | Path | IO[bytes] | Image.Image
Picture = OneFile | NDArray[Any] | Tensor
Pictures = Picture | Sequence[Picture]
COLORS = {1: "L", 3: "RGB", 4: "RGBA"}  # by the number of channels; transparency is dropped
KINDS = "a path, a PIL image, a NumPy array or a tensor"


@dataclass(frozen=True, eq=False)
class FramedPictures:
    """Pictures as images of a network [b c h w], each with the height and width that it had."""

    images: Tensor
    originals: tuple[Size, ...]


def is_one(pictures: object) -> bool:
    """Whether this is a single picture, and not several."""
    if isinstance(pictures, np.ndarray | Tensor):
        return pictures.ndim < 4
    return not isinstance(pictures, list | tuple)


def frame_pictures(pictures: Pictures, framing: Framing) -> FramedPictures:
    """One picture, a list of pictures, or an array or tensor of several, as images of the network."""
    if isinstance(pictures, Tensor) and pictures.ndim == 4:  # images of the network: the defense checks them
        return FramedPictures(pictures, (tuple(pictures.shape[2:]),) * len(pictures))  # type: ignore[arg-type]
    several: list[Any] = [pictures] if is_one(pictures) else list(pictures)  # type: ignore[arg-type]
    if not several:
        raise UsageError(f"There are no pictures. Give at least one: {KINDS}.")
    framed = [frame_one(each, framing) for each in several]
    images = [image for image, _ in framed]
    kind = torch.float64 if any(image.dtype == torch.float64 for image in images) else torch.float32
    return FramedPictures(torch.stack([image.to(kind) for image in images]), tuple(size for _, size in framed))


def frame_one(source: Picture, framing: Framing) -> tuple[Tensor, Size]:
    """An image [c h w] with floats in 0..1, and the picture's own height and width."""
    if isinstance(source, np.ndarray | Tensor):
        pixels = read_array(source)
        size = (pixels.shape[0], pixels.shape[1])
        if pixels.dtype != np.uint8 and pixels.shape == (*framing.size, framing.channels):
            return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), size
        picture = to_picture(pixels, framing.channels)
    else:
        picture = read_picture(source, framing.channels)
        size = (picture.height, picture.width)
    framed = torch.from_numpy(framing.frame(picture)).permute(2, 0, 1).contiguous()
    return to_unit(framed), size


def read_picture(source: OneFile, channels: int) -> Image.Image:
    """The upright picture of a path, an open file or a PIL image."""
    if isinstance(source, Image.Image):
        return upright(source, channels)
    if isinstance(source, str | Path):
        path = Path(source)
        if path.is_dir():
            raise UsageError(f"{path} is a folder. Give its pictures, or use `bagcert predict MODEL {path}`.")
        return read_file(path, channels)
    if isinstance(source, io.TextIOBase):
        raise UsageError('The file is open as text. Open it with open(path, "rb").')
    if isinstance(source, io.IOBase):
        return read_file(source, channels)
    raise UsageError(
        f"A picture is {KINDS}, but this is {type(source).__name__}. Give one of these, or a list of them."
    )


def read_array(array: NDArray[Any] | Tensor) -> NDArray[Any]:
    """Pixels [h w c]: bytes, or floats in 0..1. What can be read in two ways is refused."""
    values = array.detach().cpu().numpy() if isinstance(array, Tensor) else array
    pixels = channels_last(values)
    if 0 in pixels.shape:
        raise UsageError(f"The picture has no pixels: its shape is {list(values.shape)}. Give at least 1x1.")
    if pixels.dtype == np.uint8:
        return pixels
    if not np.issubdtype(pixels.dtype, np.floating):
        raise UsageError(f"Pixels are bytes or floats in 0..1, but these are {pixels.dtype}. Use .astype(np.uint8).")
    least, most = float(pixels.min()), float(pixels.max())
    if not (least >= 0 and most <= 1):
        raise UsageError(
            f"Pixels must lie in 0..1, but these are in {least:g}..{most:g}. "
            "Divide bytes by 255, or give them as uint8; do not normalize, the network does that."
        )
    return pixels if pixels.dtype == np.float64 else pixels.astype(np.float32)


def channels_last(values: NDArray[Any]) -> NDArray[Any]:
    """[h w c] from the three ways to order the axes."""
    shape, known = list(values.shape), "[h w c], [c h w] or [h w]"
    if values.ndim == 2:
        return values[:, :, None]
    if values.ndim != 3 or not {shape[0], shape[2]} & COLORS.keys():
        raise UsageError(f"A picture has the shape {known} with 1, 3 or 4 channels, but this one has {shape}.")
    if shape[0] in COLORS and shape[2] in COLORS:
        raise UsageError(
            f"The shape {shape} can be read as [h w c] or as [c h w]. Give the picture as Image.fromarray(array)."
        )
    return values if shape[2] in COLORS else values.transpose(1, 2, 0)


def to_picture(pixels: NDArray[Any], channels: int) -> Image.Image:
    """The upright picture of an array; floats are rounded half up to 8 bits."""
    levels: Pixels = pixels if pixels.dtype == np.uint8 else np.floor(pixels * 255.0 + 0.5).astype(np.uint8)
    levels = np.ascontiguousarray(levels)
    mode = COLORS[levels.shape[2]]
    return Image.fromarray(levels[:, :, 0] if mode == "L" else levels, mode).convert(MODES[channels])
