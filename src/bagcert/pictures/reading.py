"""From a file to upright 8-bit pixels. Every step works on single pixels or moves them, so a patch stays a patch."""

import warnings
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from bagcert.errors import UsageError, first_line

Pixels = NDArray[np.uint8]  # h w c
MODES = {1: "L", 3: "RGB"}
ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".ppm", ".pgm", ".tif", ".tiff", ".webp")  # in folders
# What Pillow raises for files that it cannot read to their end.
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)


def upright(picture: Image.Image, channels: int) -> Image.Image:
    """The picture as its EXIF entry says, in 8 bits: gray or RGB. Transparency and the lower 8 of 16 bits are dropped.

    The result is a picture of its own, whatever becomes of the file.
    """
    turned = ImageOps.exif_transpose(picture)
    turned.info.pop("transparency", None)  # otherwise Pillow warns that it is dropped
    if turned.mode.startswith("I"):  # 16-bit gray; Pillow's own conversion would clip at 255
        turned = Image.fromarray((np.asarray(turned).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8))
    return turned.convert(MODES[channels])


def read_file(file: Path | IO[bytes], channels: int) -> Image.Image:
    """The upright picture of a file; an animation's first frame. UsageError without a remedy if it cannot be read."""
    name = file if isinstance(file, Path) else "from an open file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's remarks on metadata and transparency: only colors count
            with Image.open(file) as picture:
                return upright(picture, channels)
    except FileNotFoundError:
        raise UsageError(f"{file} does not exist.") from None
    except UnidentifiedImageError as error:  # Pillow's words name a path, or else an object of Python
        reason = first_line(error) if isinstance(file, Path) else "these bytes are no picture in a known format"
        raise UsageError(f"Cannot read the image {name}: {reason}.") from None
    except UNREADABLE as error:
        raise UsageError(f"Cannot read the image {name}: {first_line(error)}.") from None
