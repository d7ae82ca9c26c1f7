"""An answer as a figure: the picture in its own pixels, and the scores of the class and of its closest rival."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from bagcert.answers import Answer
from bagcert.errors import UsageError
from bagcert.pictures.sources import Picture, read_array, read_picture, to_picture
from bagcert.threats import Footprint

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def one_picture(picture: Picture) -> "NDArray[Any] | Tensor | Image.Image":
    """A single picture that can be looked at twice, which a file cannot."""
    if isinstance(picture, np.ndarray | Tensor):
        if picture.ndim == 4 and len(picture) != 1:
            raise UsageError(f"One picture is drawn at a time, but these are {len(picture)}. Give pictures[0].")
        return picture[0] if picture.ndim == 4 else picture
    return read_picture(picture, channels=3)


def own_pixels(picture: "NDArray[Any] | Tensor | Image.Image") -> NDArray[np.uint8]:
    """The picture's bytes [h w 3]."""
    return np.asarray(picture if isinstance(picture, Image.Image) else to_picture(read_array(picture), channels=3))


def fingerprints(images: Tensor) -> Tensor:
    """A number for each image [b c h w] that tells it from others: a weighted sum of the bits of its pixels, int64 [b].

    Computed where the images lie, since a digest of bytes would take longer than the network on a GPU.
    """
    bits = images.detach().float().contiguous().view(torch.int32).flatten(1)
    return (bits * torch.arange(1, 2 * bits.shape[1], 2, device=bits.device)).sum(dim=1)


def need_same(certified: Tensor, given: Tensor) -> None:
    """Refuse to draw a proof on another picture than its own."""
    if int(certified) != int(given):
        raise UsageError("This certificate is of another picture. Give the one that was certified.")


def draw_answer(answer: Answer, pixels: NDArray[Any], footprint: Footprint, classes: Sequence[str]) -> "Figure":
    """Three panels. What the network does not see of the picture lies outside the dashed line."""
    from bagcert.pictures.panels import SEEN, draw_panels, outline, reach  # matplotlib takes a while to import

    title = "weakest place" if answer.second is None else "weakest places"
    if answer.threat.masks is not None:  # a set of pixels is no box
        title = f"around the {title}"
    placements = [answer.weakest] + ([] if answer.second is None else [answer.second])
    maps = [
        (f"evidence for {answer.name}", answer.scores[answer.predicted]),
        (f"rival: {answer.rival}", answer.scores[classes.index(answer.rival)]),
    ]
    figure = draw_panels(
        pixels,
        title,
        maps,
        [answer.own.source(each) for each in placements],
        [reach(footprint, each) for each in placements],
        height=3.2,
    )
    if answer.own.part[2:] != answer.own.original:
        outline(figure.axes[0], answer.own.part, SEEN, linestyle="dashed")
    figure.suptitle(str(answer))
    return figure
