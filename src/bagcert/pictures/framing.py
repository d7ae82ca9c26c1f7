"""How a picture of any size becomes the network's input: one framing per model, the same wherever a picture is read.

First a part of the picture is chosen, in whole pixels of its own: the largest part in the middle that has the
proportions of the network's input, or the whole picture. Then Pillow resizes that part. A picture that already has the
network's size is its input, unchanged. `own_pixels` proves what this means for a patch.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bagcert.config import read_config
from bagcert.errors import UsageError, unknown_name
from bagcert.pictures.reading import MODES, Pixels
from bagcert.threats.threat import Placement, Size

FITS = {
    "crop": "keep the proportions and cut off what lies outside the middle",
    "squash": "keep the whole picture and scale each side separately",
}
INTERPOLATIONS = {"bilinear": Image.Resampling.BILINEAR, "box": Image.Resampling.BOX}  # reaches: see `own_pixels`


@dataclass(frozen=True)
class Framing:
    """What is kept of a picture, and how it is resized to `size`. The defaults are the usual ones for ImageNet.

    With fit "crop", `resize` is the length that the shorter side would be scaled to before `size` is cut out of the
    middle: 256 for 224x224 leaves a margin, 224 leaves none. 0: pictures are never scaled, only cut.

    Interpolation "box" averages the pixels under each new one. Each pixel enters as few new ones as possible, so it
    proves larger patches in the picture's own pixels than "bilinear", which is smoother.
    """

    size: tuple[int, int] = (224, 224)  # height, width
    resize: int = 256
    channels: int = 3  # 1: gray, 3: RGB
    fit: str = "crop"
    interpolation: str = "box"

    def __post_init__(self) -> None:
        height, width = self.size
        if min(self.size) < 1:
            raise UsageError(f"The crop must have at least 1 pixel, but has {height}x{width}.")
        if self.resize and self.resize < min(self.size):
            raise UsageError(f"A crop of {height}x{width} does not fit into resize = {self.resize}. Change either.")
        if self.channels not in MODES:
            raise UsageError(f"Pictures have 1 channel (gray) or 3 (RGB), but this network takes {self.channels}.")
        if self.fit not in FITS:
            raise unknown_name("fit", self.fit, FITS)
        if self.interpolation not in INTERPOLATIONS:
            raise unknown_name("interpolation", self.interpolation, INTERPOLATIONS)

    @staticmethod
    def usual(size: Size, channels: int = 3) -> "Framing":
        """The framing of a model whose card names none: crop without a margin; at 224x224 with the usual one."""
        return Framing(size, 256 if min(size) == 224 else min(size), channels)

    @staticmethod
    def on_card(table: Any, size: Size, channels: int) -> "Framing":
        """The framing that a card names, which must be one for this network; None: the usual one."""
        if table is None:
            return Framing.usual(size, channels)
        found = read_config(Framing, table, "framing")
        if (found.size, found.channels) != (size, channels):
            raise UsageError(
                f"The card's framing makes {found.channels}x{found.size[0]}x{found.size[1]}, but the network takes "
                f"{channels}x{size[0]}x{size[1]}. Copy the model again."
            )
        return found

    def window(self, original: Size) -> Size:
        """The height and width of the part that is kept of a picture, in its own pixels."""
        if self.fit == "squash":
            return original
        if not self.resize:
            if original[0] < self.size[0] or original[1] < self.size[1]:
                crop = f"the crop of {self.size[0]}x{self.size[1]}. Set resize, or a smaller crop."
                raise UsageError(f"The picture has {original[0]}x{original[1]} pixels, fewer than {crop}")
            return self.size
        tight = 0 if original[0] * self.size[1] <= original[1] * self.size[0] else 1  # the axis that limits the part
        top = original[tight] * min(self.size)
        bottom = self.size[tight] * self.resize
        height, width = (max(1, (2 * side * top + bottom) // (2 * bottom)) for side in self.size)  # rounded half up
        return height, width

    def part(self, original: Size, position: tuple[float, float] | None = None) -> Placement:
        """The part that is kept: in the middle, or for training at a `position` in [0, 1)², one of all that fit."""
        if position is None and original == self.size:
            return Placement(0, 0, *original)
        height, width = self.window(original)
        down, right = original[0] - height, original[1] - width
        if position is None:
            return Placement(down // 2, right // 2, height, width)
        return Placement(int(position[0] * (down + 1)), int(position[1] * (right + 1)), height, width)

    def frame(self, picture: Image.Image, position: tuple[float, float] | None = None) -> Pixels:
        """The network's input from an upright picture (`reading.upright`), uint8 [h w c]."""
        top, left, height, width = self.part((picture.height, picture.width), position)
        part = picture.crop((left, top, left + width, top + height))
        resized = part.resize((self.size[1], self.size[0]), INTERPOLATIONS[self.interpolation])
        return np.array(resized).reshape(*self.size, self.channels)


def to_unit(images: Tensor) -> Tensor:
    """uint8 to float32 in [0, 1], with the same bits on every device.

    The divisor is a tensor on the device. With a Python number, CUDA would multiply by its reciprocal, which rounds
    differently from the CPU's division.
    """
    return images.float() / torch.full((), 255.0, device=images.device)
