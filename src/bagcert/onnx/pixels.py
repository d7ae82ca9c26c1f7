"""Images that get no certificate: a pixel is not finite or outside 0..1, which `Defense.scores` refuses too."""

import torch
from torch import Tensor

from bagcert.tensors import Images

FINE, NOT_FINITE, OUTSIDE = range(3)
PROBLEMS = {FINE: "none", NOT_FINITE: "a pixel is NaN or infinite", OUTSIDE: "a pixel lies outside 0..1"}


def pixel_problems(images: Images) -> Tensor:
    """What is wrong with each image, int64 [b]: a key of PROBLEMS."""
    finite = images.isfinite().flatten(1).all(dim=1)
    inside = ((images >= 0) & (images <= 1)).flatten(1).all(dim=1)  # false of NaN too
    return torch.where(inside, FINE, torch.where(finite, OUTSIDE, NOT_FINITE))


def blackened(images: Images, problems: Tensor) -> Images:
    """The images with black in place of those that have a problem, so that no NaN reaches the network."""
    return torch.where((problems == FINE)[:, None, None, None], images, 0.0)
