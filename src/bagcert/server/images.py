"""Decode an uploaded file within the server's limits, or raise an error that says why not."""

import io
from typing import IO

from PIL import Image, UnidentifiedImageError

from bagcert.errors import first_line
from bagcert.pictures import Pixels
from bagcert.pictures.reading import upright
from bagcert.server.limits import Limits
from bagcert.server.schemas import RequestError

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
# A scan of a progressive JPEG takes only a few bytes but a pass over all pixels. Ordinary files have about ten.
START_OF_SCAN, MOST_SCANS = b"\xff\xda", 64


def read_picture(file: IO[bytes], channels: int, limits: Limits) -> Image.Image:
    """The upright picture, as `bagcert.pictures.reading` has it, of a file that is within the limits."""
    content = file.read()
    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            check_size(picture.size, limits)
            check_kind(picture, content)
            picture.load()
            return upright(picture, channels)
    except RequestError:
        raise
    except UnidentifiedImageError:
        raise RequestError(415, f"This is not a picture in a known format. Send one of {', '.join(FORMATS)}.") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning, MemoryError):
        raise RequestError(413, f"The picture has more than {limits.pixels} pixels. Send a smaller one.") from None
    except Exception as error:  # given a corrupt file, Pillow's parsers may raise anything
        raise RequestError(422, f"The picture is broken or incomplete ({first_line(error)}). Send it again.") from None


def check_kind(picture: Image.Image, content: bytes) -> None:
    """Reject files that hold more than one picture, or take as long to decode."""
    # A phone's JPEG may carry previews after the picture itself, as "frames" of format MPO.
    if getattr(picture, "is_animated", False) and picture.format != "MPO":
        raise RequestError(422, "The picture is animated. Send a single frame.")
    if picture.format in ("JPEG", "MPO") and content.count(START_OF_SCAN) > MOST_SCANS:
        raise RequestError(422, f"The JPEG has more than {MOST_SCANS} scans. Save it again with fewer.")


def check_size(size: tuple[int, int], limits: Limits) -> None:
    """Reject by the size in the header, before anything is decoded."""
    width, height = size
    if width < 1 or height < 1:
        raise RequestError(422, f"The picture has {height}x{width} pixels. Send one of at least 1x1.")
    if width * height > limits.pixels or max(size) > limits.side:
        raise RequestError(
            413,
            f"The picture has {height}x{width} pixels, but at most {limits.pixels} pixels and {limits.side} per side "
            "are allowed. Send a smaller one.",
        )


def to_png(pixels: Pixels) -> bytes:
    """The pixels as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if pixels.shape[2] == 1 else pixels).save(buffer, "PNG")
    return buffer.getvalue()
