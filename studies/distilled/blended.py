"""Pictures blended of two, about which only the teacher knows anything.

A teacher repeats by heart what it learned about its training images. What it says about a picture that nobody has
labeled is what it has understood, and there is no end of such pictures.
"""

import torch

from bagcert.tensors import Images

UNTIL = 0.9  # of the training; batch norm then has time for the statistics of whole images


def blend(images: Images, count: int) -> Images:
    """The first `count` images of a batch, each with a random share of the one before it; the others as they are."""
    if count == 0:
        return images
    first, rest = images[:count], images[count:]
    share = torch.rand(count, 1, 1, 1, device=images.device)
    return torch.cat([torch.lerp(first, first.roll(1, dims=0), share), rest])
