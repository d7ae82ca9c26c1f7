"""Programs that compute scores: the same network by another backend, device, type, layout or batch size."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.errors import UsageError, unknown_name
from bagcert.onnx.logits import Logits
from bagcert.onnx.packages import need_onnx
from bagcert.program import full_precision
from bagcert.scorers.base import Scorer
from bagcert.shapes import Images

Run = Callable[[Images], Tensor]  # images to logits, float32 on the CPU
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
BACKENDS = ("torch", "onnx")


@dataclass(frozen=True)
class Program:
    """How scores are computed. `batch` images at a time, filled up with black ones; 0: as many as come."""

    backend: str = "torch"
    device: str = "cpu"
    dtype: str = "float32"
    compiled: bool = False
    channels_last: bool = True
    batch: int = Defense.batch_size
    tf32: bool = False  # on a GPU: convolutions by TF32, which a defense never uses
    cudnn: bool = False  # on a GPU: float32 convolutions by cuDNN, which a defense never uses either

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise unknown_name("a backend", self.backend, BACKENDS)
        if self.dtype not in DTYPES:
            raise unknown_name("a dtype", self.dtype, DTYPES)
        if self.backend == "onnx" and (self.compiled or self.dtype != "float32"):
            raise UsageError(
                "expected float32, not compiled, for backend onnx, got others; leave out --dtype, --compile"
            )
        if self.tf32 and torch.device(self.device).type != "cuda":
            raise UsageError(f"expected a GPU for TF32, got device {self.device}; leave out --tf32")
        if self.cudnn and (self.tf32 or not self.gpu_float32):
            raise UsageError(f"expected torch in float32 on a GPU for cuDNN, got {self}; leave out --cudnn")

    @property
    def gpu_float32(self) -> bool:
        """Whether torch computes in float32 on a GPU, where a defense goes without cuDNN."""
        return self.backend == "torch" and self.dtype == "float32" and torch.device(self.device).type == "cuda"

    def __str__(self) -> str:
        words = [self.backend, self.device, self.dtype]
        if self.backend == "torch":
            words += ["compiled" if self.compiled else "eager", "channels_last" if self.channels_last else "NCHW"]
        words += ["TF32"] if self.tf32 else []
        # Said of what goes without: rows and audits that do not say so were made with cuDNN.
        words += ["without cuDNN"] if self.gpu_float32 and not (self.tf32 or self.cudnn) else []
        return ", ".join([*words, f"batches of {self.batch}" if self.batch else "batches as they come"])

    def candidates(self) -> "list[Program]":
        """The same program with one setting more on the safe side, and then another: what may cure a violation."""
        fixed = replace(self, batch=Defense.batch_size)
        found = [fixed]
        if self.backend == "torch":
            found += [replace(self, channels_last=True), replace(fixed, channels_last=True)]
            found += [replace(fixed, channels_last=True, compiled=False)]
        found += [replace(fixed, tf32=False, cudnn=False)]
        return [program for program in dict.fromkeys(found) if program != self]


def prepare(program: Program, scorer: Scorer, channels: int) -> Run:
    """The program, ready to run; the scorer itself is left as it is."""
    whole = onnx_run(program, scorer, channels) if program.backend == "onnx" else torch_run(program, scorer)

    def run(images: Images) -> Tensor:
        if not program.batch:
            return whole(images)
        parts = []
        for part in torch.split(images, program.batch):
            filled = torch.zeros(program.batch, *images.shape[1:])
            filled[: len(part)] = part
            parts.append(whole(filled)[: len(part)])
        return torch.cat(parts)

    return run


def torch_run(program: Program, scorer: Scorer) -> Run:
    layout = torch.channels_last if program.channels_last else torch.contiguous_format
    network = copy.deepcopy(scorer).to(program.device).to(memory_format=layout)  # type: ignore[call-overload]
    logits = compiled(network) if program.compiled else network.logits
    kind, reduced = torch.device(program.device).type, program.dtype != "float32"

    def run(images: Images) -> Tensor:
        placed = images.to(program.device).contiguous(memory_format=layout)
        with (
            torch.no_grad(),
            torch.autocast(kind, DTYPES[program.dtype], enabled=reduced),
            arithmetic(program),
        ):
            found: Tensor = logits(placed)
        return found.float().cpu()

    return run


def compiled(network: Scorer) -> Run:
    """The network's logits by torch.compile, which finds out at the first call whether it can."""
    torch.compiler.reset()  # code compiled with cuDNN is taken for code without it, and the other way round
    fast = torch.compile(network.logits)

    def run(images: Images) -> Tensor:
        try:
            return fast(images)
        except Exception as error:
            first_line = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise UsageError(f"expected torch.compile to work here, got: {first_line}; leave out --compile") from error

    return run


def onnx_run(program: Program, scorer: Scorer, channels: int) -> Run:
    need_onnx()
    import onnxruntime

    from bagcert.onnx.network import network_model

    model = network_model(Logits(copy.deepcopy(scorer).cpu()), channels, scorer.footprint.image_size, ["logits"])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    provider = "CPUExecutionProvider" if program.device == "cpu" else "CUDAExecutionProvider"
    if provider not in onnxruntime.get_available_providers():
        raise UsageError(f"expected an onnxruntime with {provider}, got none; pip install onnxruntime-gpu")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
    return lambda images: torch.from_numpy(session.run(["logits"], {"images": images.contiguous().numpy()})[0])


@contextmanager
def arithmetic(program: Program) -> Iterator[None]:
    """The settings of a defense, but for cuDNN and TF32 where those are asked for."""
    with full_precision():
        if program.tf32 or program.cudnn:
            with torch.backends.cudnn.flags(enabled=True, deterministic=program.cudnn, allow_tf32=program.tf32):
                yield
        else:
            yield
