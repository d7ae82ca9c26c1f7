"""By what scores are computed: the device, how much fits on it at once, the arithmetic, versions."""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from threading import RLock

import torch

ONE_AT_A_TIME = RLock()


def at_once(limits: Mapping[str, int], device: torch.device) -> int:
    """The limit of that device; one of a kind that nobody has measured is treated as a CPU."""
    return limits.get(device.type, limits["cpu"])


@contextmanager
def full_precision() -> Iterator[None]:
    """The arithmetic of proofs, whatever training has set: float32 without TF32 and without cuDNN.

    With TF32 an H200 gives an image other scores at another place in its batch. cuDNN is free to compute a float32
    convolution by FFT, and for 192 channels on an H200 it does: then a patch changes the last bits of scores all over
    the image, and no footprint holds. Without cuDNN torch gathers the pixels of each position and multiplies matrices:
    what a score does not see does not enter it. cuDNN stays where autocast asks for bfloat16, in which it passes the
    audits of the shipped models (`bagcert audit --device cuda`, with `--cudnn`, `--tf32` or `--dtype bfloat16`).

    torch keeps these settings for the whole process, so one thread at a time is inside.
    """
    with ONE_AT_A_TIME:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            reduced = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
            with torch.backends.cudnn.flags(enabled=reduced, benchmark=False, deterministic=True, allow_tf32=False):
                yield
        finally:
            torch.set_float32_matmul_precision(before)


def versions() -> dict[str, str]:
    try:
        own = metadata.version("bagcert")
    except metadata.PackageNotFoundError:
        own = "not installed"  # run from its source folder
    return {"bagcert": own, "python": platform.python_version(), "torch": torch.__version__}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"
