"""By what scores are computed: device, arithmetic, size of a batch, versions; and its one description.

A certificate holds for the program that computed the scores. Rows, cards, audits and benchmarks name it in the same
words, those of `Program.describe`.
"""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from threading import RLock

import torch
from torch import Tensor

from bagcert.errors import UsageError, unknown_name

BATCH_SIZE = 16
BACKENDS = ("torch", "onnx")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
ONE_AT_A_TIME = RLock()


@dataclass(frozen=True)
class Program:
    """How scores are computed. `batch` images at a time, filled up with black ones; 0: as many as come."""

    backend: str = "torch"
    device: str = "cpu"
    dtype: str = "float32"
    compiled: bool = False
    channels_last: bool = True
    batch: int = BATCH_SIZE
    tf32: bool = False  # on a GPU: convolutions by TF32, which a defense never uses
    cudnn: bool = False  # on a GPU: float32 convolutions by cuDNN, which a defense never uses either

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown_name("backend", self.backend, BACKENDS)
        if self.dtype not in DTYPES:
            raise unknown_name("dtype", self.dtype, DTYPES)
        if self.backend == "onnx" and (self.compiled or self.dtype != "float32"):
            raise UsageError(
                "expected float32, not compiled, for backend onnx, got others; leave out --dtype, --compile"
            )
        if self.tf32 and not self.on_gpu:
            raise UsageError(f"expected a GPU for TF32, got device {self.device}; leave out --tf32")
        if self.cudnn and (self.tf32 or not self.full_on_gpu):
            raise UsageError(f"expected torch in float32 on a GPU for cuDNN, got {self}; leave out --cudnn")

    @property
    def on_gpu(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def reduced(self) -> bool:
        """Whether the network runs in bfloat16, by autocast."""
        return self.dtype == "bfloat16"

    @property
    def full_on_gpu(self) -> bool:
        """Whether torch computes in full precision on a GPU, where a defense goes without cuDNN."""
        return self.backend == "torch" and not self.reduced and self.on_gpu

    def __str__(self) -> str:
        words = [self.backend, torch.device(self.device).type, self.dtype]
        if self.backend == "torch":
            words += ["compiled" if self.compiled else "eager", "channels_last" if self.channels_last else "NCHW"]
        words += ["TF32"] if self.tf32 else []
        # Said of what goes without: rows and audits that do not say so were made with cuDNN.
        words += ["without cuDNN"] if self.full_on_gpu and not (self.tf32 or self.cudnn) else []
        return ", ".join([*words, f"batches of {self.batch}" if self.batch else "batches as they come"])

    def describe(self) -> dict[str, object]:
        """The provenance of scores: what rows and cards say of the program."""
        return {"versions": versions(), "device": device_name(torch.device(self.device)), "arithmetic": str(self)}

    def candidates(self) -> "list[Program]":
        """The same program with one setting more on the safe side, and then another: what may cure a violation."""
        fixed = replace(self, batch=BATCH_SIZE)
        found = [fixed]
        if self.backend == "torch":
            found += [replace(self, channels_last=True), replace(fixed, channels_last=True)]
            found += [replace(fixed, channels_last=True, compiled=False)]
        found += [replace(fixed, tf32=False, cudnn=False)]
        return [program for program in dict.fromkeys(found) if program != self]


def full_batches(images: Tensor, size: int, like: Tensor | None = None) -> Iterator[tuple[Tensor, int]]:
    """Batches of exactly `size` images, the last one filled up with black ones, and how many of each are real.

    In the type and on the device of `like`, else of the images. With batches of one size the program is always the
    same: with others the scores of an image may change in their last bits.
    """
    like = images if like is None else like
    for part in torch.split(images, size):
        batch = torch.zeros(size, *images.shape[1:], dtype=like.dtype, device=like.device)
        batch[: len(part)] = part
        yield batch, len(part)


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


def usual_device() -> torch.device:
    """The GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def find_device(asked: str | torch.device | None, usual: torch.device | None = None) -> torch.device:
    """The device that a caller names, refused if this machine does not have it; without a name, the usual one."""
    try:
        device = torch.device(asked) if asked is not None else usual or torch.device("cpu")
    except RuntimeError as error:
        raise UsageError(f"expected a device like cpu or cuda:0, got '{asked}'; leave out --device") from error
    missing = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if device.type not in ("cpu", "cuda") or missing:
        raise UsageError(f"expected a device of this machine, got '{asked}'; leave out --device")
    return device


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"


def versions() -> dict[str, str]:
    """Of this package, Python and torch."""
    try:
        own = metadata.version("bagcert")
    except metadata.PackageNotFoundError:
        own = "not installed"  # run from its source folder
    return {"bagcert": own, "python": platform.python_version(), "torch": torch.__version__}
