"""How scores are computed: device, arithmetic, batch size, versions; and the one description of all that.

A certificate holds for the program that computed the scores. Rows, cards, audits and benchmarks all describe it in the
words of `Program.describe`.
"""

import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError, unknown_name
from bagcert.version import __version__

BATCH_SIZE = 16
BACKENDS = ("torch", "onnx")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
ONE_AT_A_TIME = RLock()


@dataclass(frozen=True)
class Program:
    """How scores are computed. Batches of `batch` images, filled up with black ones; 0: batches as they come."""

    backend: str = "torch"
    device: str = "cpu"
    dtype: str = "float32"
    compiled: bool = False
    channels_last: bool = True
    batch: int = BATCH_SIZE
    tf32: bool = False  # on a GPU: convolutions in TF32, which a defense never uses
    cudnn: bool = False  # on a GPU: float32 convolutions by cuDNN, which a defense never uses
    folded: bool = False  # every batch norm is inside the convolution before it

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown_name("backend", self.backend, BACKENDS)
        if self.dtype not in DTYPES:
            raise unknown_name("dtype", self.dtype, DTYPES)
        if self.backend == "onnx" and (self.compiled or self.dtype != "float32"):
            raise UsageError("Backend onnx runs in float32 and is not compiled. Leave out --dtype and --compile.")
        if self.backend == "onnx" and self.folded:
            raise UsageError("Backend onnx runs a graph of its own, which no program of ours replaces. Leave one out.")
        if self.tf32 and not self.on_gpu:
            raise UsageError(f"TF32 needs a GPU, but the device is {self.device}. Leave out --tf32.")
        if self.cudnn and (self.tf32 or not self.full_on_gpu):
            raise UsageError(f"The option --cudnn is for torch in float32 on a GPU, not for {self}. Leave it out.")

    @property
    def on_gpu(self) -> bool:
        return torch.device(self.device).type == "cuda"

    @property
    def reduced(self) -> bool:
        """Whether the network runs in bfloat16, by autocast."""
        return self.dtype == "bfloat16"

    @property
    def full_on_gpu(self) -> bool:
        """Whether torch computes in full precision on a GPU; a defense then runs without cuDNN."""
        return self.backend == "torch" and not self.reduced and self.on_gpu

    def __str__(self) -> str:
        words = [self.backend, torch.device(self.device).type, self.dtype]
        if self.backend == "torch":
            words += ["compiled" if self.compiled else "eager", "channels_last" if self.channels_last else "NCHW"]
        words += ["folded batch norm"] if self.folded else []
        words += ["TF32"] if self.tf32 else []
        # A description on a GPU that does not say this means that cuDNN was on.
        words += ["without cuDNN"] if self.full_on_gpu and not (self.tf32 or self.cudnn) else []
        return ", ".join([*words, f"batches of {self.batch}" if self.batch else "batches as they come"])

    def describe(self) -> dict[str, object]:
        """The provenance of scores: what rows and cards say about the program."""
        known = {"instructions": bfloat16_instructions()} if self.reduced and not self.on_gpu else {}
        device = device_name(torch.device(self.device))
        return {"versions": versions(), "device": device, "arithmetic": str(self), **known}

    def candidates(self) -> "list[Program]":
        """The same program with one or more settings on the safe side: what may cure a violation."""
        fixed = replace(self, batch=BATCH_SIZE)
        found = [fixed]
        if self.backend == "torch":
            found += [replace(self, channels_last=True), replace(fixed, channels_last=True)]
            found += [replace(fixed, channels_last=True, compiled=False)]
        found += [replace(fixed, tf32=False, cudnn=False)]
        return [program for program in dict.fromkeys(found) if program != self]


EXACT, FAST = "exact", "fast"
# What users choose by name, for each kind of device: the settings of `Program` that differ from the usual ones.
# A GPU needs large batches and no gaps between its kernels. A CPU is as busy with one image as with many, and then a
# single picture waits for no others; compiling would take longer there than most jobs.
PROGRAMS: dict[str, dict[str, dict[str, Any]]] = {
    EXACT: {"cpu": {}, "cuda": {}},
    FAST: {
        "cpu": {"dtype": "bfloat16", "folded": True, "batch": 1},
        "cuda": {"dtype": "bfloat16", "folded": True, "compiled": True, "batch": 512},
    },
}


def find_program(name: str, device: str | torch.device) -> Program:
    """The program of that name on this device."""
    if name not in PROGRAMS:
        raise unknown_name("program", name, PROGRAMS)
    return Program(device=str(device), **PROGRAMS[name][torch.device(device).type])


def full_batches(
    images: Tensor, size: int, like: Tensor | None = None, fill: bool = True
) -> Iterator[tuple[Tensor, int]]:
    """Batches of exactly `size` images, the last one filled up with black ones, each with its number of real images.

    They have the type and device of `like` if given, else of the images. The scores of an image may change in their
    last bits with the batch size, so batches of one size keep the program the same. Without `fill`, for a network that
    sees to this itself, the last one is smaller.
    """
    like = images if like is None else like
    for part in torch.split(images, size):
        batch = torch.zeros(size if fill else len(part), *images.shape[1:], dtype=like.dtype, device=like.device)
        batch[: len(part)] = part
        yield batch, len(part)


def at_once(limits: Mapping[str, int], device: torch.device) -> int:
    """The limit for this kind of device; a kind without a limit of its own gets that of the CPU."""
    return limits.get(device.type, limits["cpu"])


@contextmanager
def full_precision() -> Iterator[None]:
    """The arithmetic of proofs, whatever training has set: float32 without TF32, without cuDNN and without NNPACK.

    With TF32, an H200 gives an image different scores at different positions in its batch. cuDNN may compute a float32
    convolution by FFT, and for 192 channels on an H200 it does: a patch then changes the last bits of scores all over
    the image, and no footprint holds. Without cuDNN, torch gathers the pixels of each position and multiplies matrices,
    so a pixel that a score does not see cannot enter it. cuDNN stays on if autocast asks for bfloat16, in which it
    passes the audits of the shipped models (`bagcert audit --device cuda`, with `--cudnn`, `--tf32` or
    `--dtype bfloat16`).

    NNPACK transforms tiles, too (Winograd, FFT). On a CPU torch takes it for 16 images and more if oneDNN is missing,
    as on some machines it is, or switched off.

    torch keeps these settings for the whole process, so only one thread at a time may be inside.
    """
    with ONE_AT_A_TIME:
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
        try:
            reduced = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
            with (
                torch.backends.nnpack.flags(enabled=False),
                torch.backends.cudnn.flags(enabled=reduced, benchmark=False, deterministic=True, allow_tf32=False),
            ):
                yield
        finally:
            torch.set_float32_matmul_precision(before)


def callers_dtype(device: torch.device) -> str:
    """float32, unless the caller has switched autocast on: the network then runs in its type."""
    if not torch.is_autocast_enabled(device.type):
        return "float32"
    dtype = torch.get_autocast_dtype(device.type)
    if dtype is not torch.bfloat16:
        raise UsageError(f"Scores are computed in float32 or bfloat16, not in {dtype}. Leave torch.autocast first.")
    return "bfloat16"


def usual_device() -> torch.device:
    """The GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def find_device(asked: str | torch.device | None, usual: torch.device | None = None) -> torch.device:
    """The device that the caller asked for, if this machine has it; the usual one if the caller named none."""
    try:
        device = torch.device(asked) if asked is not None else usual or torch.device("cpu")
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"Unknown device '{asked}'. Write cpu, cuda or cuda:0, or leave out --device.") from error
    missing = device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count()
    if device.type not in ("cpu", "cuda") or missing:
        raise UsageError(f"This machine has no device '{asked}'. Name cpu, or leave the device out.")
    return device


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"


BFLOAT16 = ("amx_bf16", "avx512_bf16", "svebf16", "bf16")  # what Linux calls them, the fastest first


def bfloat16_instructions(about: Path = Path("/proc/cpuinfo")) -> str:
    """By which instructions this processor multiplies bfloat16, since others round differently."""
    flags = set(about.read_text(encoding="utf-8").split()) if about.is_file() else set()
    return next((name for name in BFLOAT16 if name in flags), "none that is known")


def versions() -> dict[str, str]:
    """The versions of this package, Python and torch."""
    return {"bagcert": __version__, "python": platform.python_version(), "torch": torch.__version__}
