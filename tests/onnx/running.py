"""Run an ONNX model with onnxruntime."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
from torch import Tensor


def outputs_of(model: onnx.ModelProto, **inputs: Tensor) -> dict[str, Any]:
    """The outputs by their names, as arrays."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # as all tests: two processes share two cores
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    feeds = {name.replace("__", "/"): np.ascontiguousarray(value.numpy()) for name, value in inputs.items()}
    return dict(zip(names, session.run(None, feeds), strict=True))
