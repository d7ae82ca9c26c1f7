"""One image file to one uint8 array, whatever its mode, orientation or size."""

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from bagcert.errors import UsageError

DEEP_GREY = ("I;16", "I;16L", "I;16B", "I;16N", "I")  # 16 bits a pixel; Pillow opens 16-bit PNGs as one of these


@dataclass(frozen=True)
class Framing:
    """How an image becomes a square: its shorter side is scaled to `resize` (None: as it is), then `crop` is cut."""

    resize: int | None = 256
    crop: int = 224

    def __post_init__(self) -> None:
        if self.crop < 1 or (self.resize is not None and self.resize < self.crop):
            raise UsageError(f"expected a crop in 1..resize={self.resize}, got {self.crop}")


def to_rgb(picture: Image.Image) -> Image.Image:
    """Upright, three channels of 8 bits; transparency is dropped."""
    picture = ImageOps.exif_transpose(picture)
    if picture.mode in DEEP_GREY:  # Pillow's own conversion clips at 255
        picture = Image.fromarray((np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return picture.convert("RGB")


def scale(picture: Image.Image, shorter: int) -> Image.Image:
    """Bilinear with antialiasing, the shorter side exactly `shorter`."""
    width, height = picture.size
    least = min(width, height)
    size = (max(shorter, round(width * shorter / least)), max(shorter, round(height * shorter / least)))
    return picture if size == picture.size else picture.resize(size, Image.Resampling.BILINEAR)


def read_image(path: Path) -> Image.Image:
    """The whole image, decoded; anything that Pillow cannot read to its end is an error that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's remarks on metadata and transparency; only colors count
            with Image.open(path) as picture:
                return to_rgb(picture)
    except FileNotFoundError:
        raise UsageError(f"{path}: expected an image, got no such file; start again to list the folder anew") from None
    except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        remedy = "remove it (bagcert train also takes --skip-broken)"
        raise UsageError(f"{path}: expected a readable image, got {told}; {remedy}") from None


def decode(path: Path, framing: Framing, place: tuple[float, float] | None) -> Tensor:
    """uint8 [3 crop crop]; `place` in [0, 1)² says where the crop lies among all places, None: in the center."""
    picture = read_image(path)
    if framing.resize is not None:
        picture = scale(picture, framing.resize)
    width, height = picture.size
    size = framing.crop
    if width < size or height < size:
        remedy = "set resize, or a smaller crop"
        raise UsageError(f"{path}: expected an image of at least {size}x{size}, got {height}x{width}; {remedy}")
    down, right = height - size, width - size
    top, left = (down // 2, right // 2) if place is None else (int(place[0] * (down + 1)), int(place[1] * (right + 1)))
    pixels = np.array(picture.crop((left, top, left + size, top + size)))  # h w c
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
