"""Picture files of every kind, good and bad; the fuzzer also starts from them."""

import io
import struct
import zlib
from functools import cache

import numpy as np
from PIL import Image

from bagcert.pictures import Pixels
from tests.server.conftest import file_of, photos

ORIENTATION = 0x0112


def scene() -> Pixels:
    """A picture whose corners can be told apart."""
    pixels = photos()[12].copy()
    pixels[:4, :4], pixels[:4, -4:], pixels[-4:, :4] = (255, 0, 0), (0, 255, 0), (0, 0, 255)
    return pixels


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width: int, height: int, content: bytes = b"", extra: bytes = b"") -> bytes:
    """A grey PNG that claims this size, whatever its content."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + chunk(b"IDAT", zlib.compress(content)) + chunk(b"IEND", b"")


def rotated(orientation: int, kind: str = "JPEG") -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return file_of(scene(), kind, exif=exif, **({"quality": 95} if kind == "JPEG" else {}))


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def animated(kind: str) -> bytes:
    frames = [Image.fromarray(each) for each in photos()[::12]]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], duration=50)


def deep_grey() -> bytes:
    """16 bits per pixel."""
    return saved(Image.fromarray((np.arange(144, dtype=np.uint16) * 455).reshape(12, 12)), "PNG")


def many_scans(count: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    whole = file_of(scene(), "JPEG", progressive=True)
    last = whole.rindex(b"\xff\xda")
    return whole[:last] + whole[last:-2] * count + whole[-2:]


@cache
def good_files() -> dict[str, bytes]:
    """Files that get an answer."""
    picture = Image.fromarray(scene())
    return {
        "png": file_of(scene()),
        "jpeg": file_of(scene(), "JPEG"),
        "progressive": file_of(scene(), "JPEG", progressive=True),
        "webp": file_of(scene(), "WEBP"),
        "webp, lossless": file_of(scene(), "WEBP", lossless=True),
        "bmp": file_of(scene(), "BMP"),
        "still gif": file_of(scene(), "GIF"),
        "CMYK": saved(picture.convert("CMYK"), "JPEG"),
        "grey": saved(picture.convert("L"), "PNG"),
        "16 bits": deep_grey(),
        "1 bit": saved(picture.convert("1"), "PNG"),
        "palette": saved(picture.convert("P"), "PNG", transparency=3),
        "transparent": saved(picture.convert("RGBA"), "PNG"),
        "grey and transparent": saved(picture.convert("LA"), "PNG"),
        "turned": rotated(6),
        "one pixel": file_of(scene()[:1, :1]),
        "wide": file_of(np.tile(scene(), (1, 40, 1))),
        "text": png(2, 2, bytes(6), chunk(b"tEXt", b"Comment\0../../etc/passwd")),
    }


@cache
def bad_files() -> dict[str, tuple[bytes, int]]:
    """Files that get an error, with its status."""
    whole, jpeg = file_of(scene()), file_of(scene(), "JPEG")
    bomb_text = chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(2**27)))
    return {
        "empty": (b"", 415),
        "text": (b"this is not a picture", 415),
        "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415),
        "tiff": (file_of(scene(), "TIFF"), 415),
        "signature alone": (whole[:8], 415),
        "cut in its header": (whole[:20], 422),
        "cut in half": (whole[: len(whole) // 2], 422),
        "jpeg, cut in half": (jpeg[: len(jpeg) // 2], 422),
        "giant": (png(100_000, 100_000), 413),
        "giant by its header": (png(2**31 - 1, 2**31 - 1), 413),
        "long": (png(2**11, 1, bytes(2**11 + 1)), 413),
        "bomb": (png(600, 600, bytes(601 * 600)), 413),
        "bomb in a comment": (png(2, 2, bytes(6), bomb_text), 422),
        "no pixels": (png(0, 5), 415),
        "animated gif": (animated("GIF"), 422),
        "animated webp": (animated("WEBP"), 422),
        "animated png": (animated("PNG"), 422),
        "too many scans": (many_scans(80), 422),
    }
