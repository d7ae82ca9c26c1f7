"""An uploaded file to upright pixels of 8 bits, or a refusal that says why."""

import io
from typing import IO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from bagcert.server.limits import Limits
from bagcert.server.resizing import Pixels
from bagcert.server.schemas import RequestError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
MODES = {1: "L", 3: "RGB"}
# A scan of a progressive JPEG takes a few bytes, and a pass over all pixels; usual files have about ten.
START_OF_SCAN, MOST_SCANS = b"\xff\xda", 64


def read_picture(file: IO[bytes], channels: int, limits: Limits) -> Pixels:
    """Decode a still picture, turned as its EXIF entry says; transparency is dropped, 16 bits keep their upper 8.

    Every step works on single pixels, but for turning, which moves them: so a patch stays a patch.
    """
    content = file.read()
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            check_size(picture.size, limits)
            check_kind(picture, content)
            picture.load()
            ImageOps.exif_transpose(picture, in_place=True)
            return to_pixels(picture, MODES[channels])
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(415, f"expected a picture as {', '.join(FORMATS)}, got another file; convert it") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError):
        raise RequestError(413, f"expected up to {limits.pixels} pixels, got more; send a smaller picture") from None
    except Exception as error:  # Pillow's parsers raise whatever a file that lies about itself leads them to
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(422, f"expected a whole picture, got a broken one ({told}); send it again") from None


def check_kind(picture: Image.Image, content: bytes) -> None:
    """Refuse what is more than one picture, or costs as much to decode."""
    # A phone's JPEG may carry previews behind the picture itself, as "frames" of format MPO.
    if getattr(picture, "is_animated", False) and picture.format != "MPO":
        raise RequestError(422, "expected a still picture, got an animated one; send one frame")
    if picture.format in ("JPEG", "MPO") and content.count(START_OF_SCAN) > MOST_SCANS:
        raise RequestError(422, f"expected a JPEG of up to {MOST_SCANS} scans, got more; save it again")


def check_size(size: tuple[int, int], limits: Limits) -> None:
    """Refuse by what the header says, before anything is decoded."""
    width, height = size
    if width < 1 or height < 1:
        raise RequestError(422, f"expected a picture of at least 1x1 pixels, got {height}x{width}; send another")
    if width * height > limits.pixels or max(size) > limits.side:
        raise RequestError(
            413,
            f"expected up to {limits.pixels} pixels and {limits.side} a side, got {height}x{width}; "
            "send a smaller picture",
        )


def to_pixels(picture: Image.Image, mode: str) -> Pixels:
    """uint8 [h w c] of a decoded picture."""
    if picture.mode.startswith("I"):  # 16 bits of grey; Pillow's own conversion would cut at 255
        picture = Image.fromarray((np.asarray(picture) >> 8).clip(0, 255).astype(np.uint8))
    found = np.asarray(picture if picture.mode == mode else picture.convert(mode))  # converting copies in any case
    return found if found.ndim == 3 else found[:, :, None]


def to_png(pixels: Pixels) -> bytes:
    """The pixels as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()
