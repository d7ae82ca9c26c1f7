"""autocast as on a machine with a GPU: torch's own does nothing for "cuda" where there is none."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def gpu_autocast(
    device: str = "cuda", dtype: torch.dtype | None = torch.bfloat16, enabled: bool = True
) -> Iterator[None]:
    """Takes what `torch.autocast` takes, and stands for it whatever the device is called."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    torch.set_autocast_enabled("cuda", enabled)
    torch.set_autocast_dtype("cuda", dtype or before[1])
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])
