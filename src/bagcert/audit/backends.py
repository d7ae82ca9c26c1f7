"""Make programs ready to run: the same network with another backend, device, dtype, layout or batch size."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.onnx import need_onnx
from bagcert.program import Program, full_batches
from bagcert.scorers.base import Logits, Scorer
from bagcert.scorers.other_program import logits_by
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
    logits = logits_by(program, scorer)
    return lambda images: logits(images).float().cpu()


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
