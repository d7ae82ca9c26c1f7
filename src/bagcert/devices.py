"""How much is computed at once, and by which arithmetic, by the kind of device."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch


def at_once(limits: Mapping[str, int], device: torch.device) -> int:
    """The limit of that device; one of a kind that nobody has measured is treated as a CPU."""
    return limits.get(device.type, limits["cpu"])


@contextmanager
def full_precision() -> Iterator[None]:
    """float32 as it is, whatever training has set: no TF32, and no search for the fastest kernel.

    With TF32 an H200 gives an image other scores at another place in its batch; without, it does not
    (`bagcert audit --device cuda`, with and without `--tf32`).
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
