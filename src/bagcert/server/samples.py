"""Sample pictures: drawn here if the model's data set is not on this machine."""

from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw

from bagcert.pictures import Pixels
from bagcert.threats.threat import Size

COUNT = 12
# Seven-segment digits: top, upper left, upper right, middle, lower left, lower right, bottom.
STROKES = ("1110111", "0010010", "1011101", "1011011", "0111010", "1101011", "1101111", "1010010", "1111111", "1111011")
ENDS = (
    ((0, 0), (1, 0)),
    ((0, 0), (0, 1)),
    ((1, 0), (1, 1)),
    ((0, 1), (1, 1)),
    ((0, 1), (0, 2)),
    ((1, 1), (1, 2)),
    ((0, 2), (1, 2)),
)


@dataclass(frozen=True, eq=False)
class Sample:
    """A picture of the network's size, and the name of what it shows."""

    pixels: Pixels
    name: str


def drawn_samples(size: Size, channels: int) -> list[Sample]:
    """Digits as on a seven-segment display, light on dark colors."""
    samples = []
    for number in range(COUNT):
        digit = number % 10
        canvas = Image.new("RGB", (size[1], size[0]), (20 + 15 * number, 60, 200 - 12 * number))
        pen = ImageDraw.Draw(canvas)
        for drawn, ends in zip(STROKES[digit], ENDS, strict=True):
            if drawn == "1":
                line = [((0.3 + 0.4 * x) * size[1], (0.2 + 0.3 * y) * size[0]) for x, y in ends]
                pen.line(line, fill=(245, 245, 230), width=max(1, size[1] // 10))
        pixels = np.asarray(canvas if channels == 3 else canvas.convert("L"))
        samples.append(Sample(pixels.reshape(*size, channels), f"a drawn {digit}"))
    return samples
