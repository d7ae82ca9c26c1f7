"""What a device can do at best, measured: a large product of matrices or a large convolution, and a large copy."""

import torch
from torch.nn import functional as F

from bagcert.program import full_precision
from studies.common.timing import timed

SIDE = {"cpu": 2048, "cuda": 8192}  # of the matrices
CHANNELS, MAP, BATCH = 512, 32, 4  # of the convolution
BYTES = {"cpu": 2**28, "cuda": 2**32}  # of the copy


def flops_per_second(device: torch.device, dtype: torch.dtype, side: int, repeats: int) -> dict[str, float]:
    """By kind of work, in the arithmetic of proofs: float32 is never TF32. The ceiling is the larger one.

    On a CPU the two come from different libraries, of which one may leave half of the vector unit idle: on a Zen 5 core
    a convolution is 2.4 times as fast as a product of matrices. There it is computed tap by tap. On a GPU a convolution
    may be done with fewer multiplications than are counted, so it is no ceiling.
    """
    one, two = (torch.rand(side, side, device=device).to(dtype) for _ in range(2))
    with full_precision(), torch.no_grad():
        found = {"matrices": 2 * side**3 / timed(lambda: one @ two, device, repeats)}
        if device.type == "cpu":
            images = torch.rand(BATCH, CHANNELS, MAP, MAP, dtype=dtype).to(memory_format=torch.channels_last)
            weights = torch.rand(CHANNELS, CHANNELS, 3, 3, dtype=dtype).to(memory_format=torch.channels_last)
            work = 2 * BATCH * MAP**2 * CHANNELS**2 * 9
            found["convolution"] = work / timed(lambda: F.conv2d(images, weights, padding=1), device, repeats)
    return found


def bytes_per_second(device: torch.device, size: int, repeats: int) -> float:
    """Each byte is read once and written once, and counts twice."""
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * size / timed(lambda: target.copy_(source), device, repeats)
