"""Fifty picture files of odd sizes and kinds."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ORIENTATION = 0x0112
SIZES = [(12, 12), (13, 13), (24, 36), (37, 100), (100, 37), (1, 1), (1, 40), (60, 1), (5, 7), (240, 320)]
COUNT = 50


def saved(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def turned(picture: Image.Image, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return saved(picture, "JPEG", exif=exif, quality=95)


KINDS = {
    "rgb.png": lambda picture: saved(picture, "PNG"),
    "gray.png": lambda picture: saved(picture.convert("L"), "PNG"),
    "rgba.png": lambda picture: saved(Image.merge("RGBA", (*picture.split(), picture.convert("L"))), "PNG"),
    "palette.png": lambda picture: saved(picture.quantize(16), "PNG", transparency=3),
    "deep.png": lambda picture: saved(Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257), "PNG"),
    "bits.png": lambda picture: saved(picture.convert("1"), "PNG"),
    "turned.jpg": lambda picture: turned(picture, 6),
    "mirrored.jpg": lambda picture: turned(picture, 5),
    "cmyk.jpg": lambda picture: saved(picture.convert("CMYK"), "JPEG"),
    "lossy.webp": lambda picture: saved(picture, "WEBP"),
    "still.gif": lambda picture: saved(picture, "GIF"),
    "plain.bmp": lambda picture: saved(picture, "BMP"),
}


def write_odd_pictures(folder: Path) -> list[Path]:
    """In the order of their names."""
    random, names, paths = np.random.default_rng(11), list(KINDS), []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(COUNT):
        height, width = SIZES[(number * 7) % len(SIZES)]
        kind = names[number % len(names)]
        light = 250 * number // COUNT
        levels = random.integers(light // 2, light + 6, size=(height, width, 3), dtype=np.uint8)
        path = folder / f"{number:02}-{height}x{width}-{kind}"
        path.write_bytes(KINDS[kind](Image.fromarray(levels)))
        paths.append(path)
    return paths
