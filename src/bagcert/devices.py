"""How much is computed at once, and by which arithmetic, by the kind of device."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


def at_once(limits: Mapping[str, int], device: torch.device) -> int:
    """The limit of that device; one of a kind that nobody has measured is treated as a CPU."""
    return limits.get(device.type, limits["cpu"])


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 as it is, whatever training has set: no TF32, and no cuDNN.

    With TF32 an H200 gives an image other scores at another place in its batch. cuDNN is free to compute a float32
    convolution by FFT, and for 192 channels on an H200 it does: then a pixel changes the last bits of scores all over
    the image, and no footprint holds. Without cuDNN torch gathers the pixels of each position and multiplies matrices:
    what a score does not see does not enter it. Under autocast cuDNN stays, for its bfloat16 kernels pass the audit
    (`bagcert audit --device cuda`, with `--cudnn`, `--tf32` or `--dtype bfloat16`).
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        reduced = torch.is_autocast_enabled("cuda")
        with torch.backends.cudnn.flags(enabled=reduced, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
