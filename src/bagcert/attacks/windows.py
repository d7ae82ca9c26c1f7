"""The part of an image that a patch can change, and the scores that this part alone decides.

A patch at l changes the scores in R(l) and no others, and a score sees no further than its receptive field r. In a
network of stride 1 with zero padding it is therefore enough to run the window of the patch and r - 1 pixels around it:
every score in R(l) sees pixels of the window only, so the zeros that pad the window inside the image never reach one.
At the border of the image the window ends where the image ends, and its padding is the real one. The scores in R(l)
are then put into the clean map. A 5x5 patch under receptive field 7 needs 17x17 of 32x32 pixels.

For ablations, only those in R(l) are run, each on its own whole ablated image; the others keep their clean scores.
Other networks (larger stride, brought by the user) run on whole images, and their whole maps are used.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bagcert.scorers import Scorer
from bagcert.tensors import Images, Scores
from bagcert.threats.threat import Size


@dataclass(frozen=True, eq=False)
class Windows:
    """For n attacks with patches of one size: where each window lies, and what may change in it."""

    pixels: Tensor  # int64 [n hw]: the window's pixels in the flat image
    size: Size
    painted: Tensor  # bool [n 1 h w]: what the attacker may paint, in the window
    reached: Tensor  # bool [n 1 h w]: R(l), in the window
    cropped: bool  # to part of the image; else the window is the image
    piecewise: bool  # only the scores in R(l) are computed

    @staticmethod
    def around(scorer: Scorer, painted: Tensor, reached: Tensor, placements: Tensor) -> "Windows":
        """The windows of patches painted [n h w] at placements [n 4] of one size, that reach the outputs [n i j]."""
        image, cropped = scorer.footprint.image_size, scorer.croppable
        size = window_size(scorer, (int(placements[0, 2]), int(placements[0, 3])))
        lines = []  # rows and columns of each window
        for axis in (0, 1):
            start = placements[:, axis] - (scorer.footprint.receptive_field[axis] - 1)
            start = start.clamp(min=0).clamp(max=image[axis] - size[axis])
            lines.append(start[:, None] + torch.arange(size[axis], device=placements.device))
        pixels = (lines[0][:, :, None] * image[1] + lines[1][:, None, :]).flatten(1)
        reached = crop(reached[:, None], pixels, size) if cropped else reached[:, None]
        return Windows(pixels, size, crop(painted[:, None], pixels, size), reached, cropped, scorer.piecewise)

    def select(self, kept: Tensor) -> "Windows":
        """The windows of some of the attacks."""
        return replace(self, pixels=self.pixels[kept], painted=self.painted[kept], reached=self.reached[kept])

    def cut(self, images: Images) -> Images:
        """The windows of the images, in the layout that networks are run in."""
        return crop(images, self.pixels, self.size).contiguous(memory_format=torch.channels_last)

    def paste(self, windows: Images, images: Images) -> Images:
        """Whole attacked images: the painted pixels of the windows in the images [n c h w], nothing else."""
        changed = torch.where(self.painted, windows, crop(images, self.pixels, self.size))
        return put(changed, self.pixels, images)

    def logits(self, scorer: Scorer, windows: Images) -> Tensor:
        """What decides the scores in R(l), as a map; for a piecewise scorer, anything outside R(l)."""
        if self.cropped:
            return scorer.window_logits(windows, self.pixels)
        return scorer.logits_at(windows, self.reached.flatten(1)) if self.piecewise else scorer.logits(windows)

    def splice(self, scores: Scores, clean: Scores) -> Scores:
        """The score maps of the whole attacked images, from the scores of the windows and the clean maps."""
        if self.piecewise:
            return torch.where(self.reached, scores, clean)
        if not self.cropped:
            return scores
        return put(torch.where(self.reached, scores, crop(clean, self.pixels, self.size)), self.pixels, clean)


def window_size(scorer: Scorer, patch: Size) -> Size:
    """How many pixels it takes to score a patch."""
    height, width = scorer.footprint.image_size
    if not scorer.croppable:
        return height, width
    rows, columns = scorer.footprint.receptive_field
    return min(height, patch[0] + 2 * (rows - 1)), min(width, patch[1] + 2 * (columns - 1))


def crop(maps: Tensor, pixels: Tensor, size: Size) -> Tensor:
    """Of maps [n c h w], the pixels [n hw] as windows [n c h w]."""
    index = pixels[:, None].expand(-1, maps.shape[1], -1)
    return maps.flatten(2).gather(2, index).view(*maps.shape[:2], *size)


def put(windows: Tensor, pixels: Tensor, maps: Tensor) -> Tensor:
    """Maps with their pixels replaced by those of the windows."""
    index = pixels[:, None].expand(-1, maps.shape[1], -1)
    return maps.flatten(2).scatter(2, index, windows.flatten(2)).view_as(maps)
