"""Make programs ready to run: the same network with another backend, device, dtype, layout or batch size."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from bagcert.errors import UsageError, first_line
from bagcert.onnx import need_onnx
from bagcert.program import Program, full_batches, full_precision
from bagcert.scorers.base import Logits, Scorer
from bagcert.tensors import Images

Run = Callable[[Images], Tensor]  # images to logits, float32 on the CPU


def prepare(program: Program, scorer: Scorer, channels: int) -> Run:
    """The program, ready to run; the scorer itself stays unchanged."""
    if program.dtype == "float64":
        raise UsageError(
            "A program runs in float32 or bfloat16, not in float64. A network that needs float64 chooses it itself."
        )
    whole = onnx_run(program, scorer, channels) if program.backend == "onnx" else torch_run(program, scorer)

    def run(images: Images) -> Tensor:
        if not program.batch:
            return whole(images)
        return torch.cat([whole(batch)[:count] for batch, count in full_batches(images, program.batch)])

    return run


def torch_run(program: Program, scorer: Scorer) -> Run:
    layout = torch.channels_last if program.channels_last else torch.contiguous_format
    network = copy.deepcopy(scorer).to(program.device).to(memory_format=layout)  # type: ignore[call-overload]
    logits = compiled(network) if program.compiled else network.logits
    kind = torch.device(program.device).type

    def run(images: Images) -> Tensor:
        placed = images.to(program.device).contiguous(memory_format=layout)
        with (
            torch.no_grad(),
            torch.autocast(kind, torch.bfloat16, enabled=program.reduced),
            arithmetic(program),
        ):
            found: Tensor = logits(placed)
        return found.float().cpu()

    return run


def compiled(network: Scorer) -> Run:
    """The network's logits by torch.compile, which fails only at the first call, if it does."""
    torch.compiler.reset()  # torch would reuse code compiled with cuDNN for a program without it, and vice versa
    fast = torch.compile(network.logits)

    def run(images: Images) -> Tensor:
        try:
            return fast(images)
        except Exception as error:
            raise UsageError(f"torch.compile fails here ({first_line(error)}). Leave out --compile.") from error

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
        raise UsageError(f"The installed onnxruntime has no {provider}. Run: pip install onnxruntime-gpu.")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider])
    return lambda images: torch.from_numpy(session.run(["logits"], {"images": images.contiguous().numpy()})[0])


@contextmanager
def arithmetic(program: Program) -> Iterator[None]:
    """The settings of a defense, except for cuDNN and TF32 if the program asks for them."""
    with full_precision():
        if program.tf32 or program.cudnn:
            with torch.backends.cudnn.flags(enabled=True, deterministic=program.cudnn, allow_tf32=program.tf32):
                yield
        else:
            yield
