"""Every operation that tracing knows by name: it is followed, and it really keeps positions apart."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.threats.operations import ALONG_AXES, HANDLERS, POINTWISE
from bagcert.threats.tracing import trace_footprint

SIZE = (5, 4)
# What an operation takes besides the features; a tensor that is taken twice is the features themselves.
TWICE = [
    "add",
    "div",
    "eq",
    "ge",
    "gt",
    "heaviside",
    "le",
    "lt",
    "maximum",
    "minimum",
    "mul",
    "ne",
    "rsub",
    "sub",
    "type_as",
]
SETTINGS: dict[str, list[Any]] = {
    "_to_copy": [],
    "clamp": [0.2, 0.8],
    "clamp_max": [0.5],
    "clamp_min": [0.5],
    "dropout": [0.5, False],
    "feature_dropout": [0.5, False],
    "pow": [3],
    "prelu": [torch.tensor([0.1, 0.2, 0.3])],
    "threshold": [0.5, 2.0],
    "to": [torch.float64],
    "linalg_vector_norm": [2, [1], True],
    "argmax": [1, True],
    "cumsum": [1],
    "log_softmax": [1],
    "softmax": [1],
}
REDUCING = ["amax", "amin", "logsumexp", "mean", "std", "sum", "var"]


class One(nn.Module):
    """A network of one operation."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.operation = getattr(torch.ops.aten, name)

    def forward(self, images: Tensor) -> Tensor:
        features = images - 0.25  # an operation in place must not write into the images
        if self.name == "where":
            result = self.operation(features > 0, features, features * 2)
        elif self.name in TWICE:
            result = self.operation(features, features * 2 - 0.4)
        elif self.name in ("std", "var"):
            result = self.operation(features, [1], correction=1, keepdim=True)
        elif self.name in REDUCING:
            result = self.operation(features, [1], True)
        else:
            result = self.operation(features, *SETTINGS.get(self.name, []))
        scores: Tensor = result
        return scores


@pytest.mark.parametrize("name", [*POINTWISE.split(), *ALONG_AXES.split(), "dropout", "feature_dropout"])
def test_an_operation_keeps_positions_apart(name: str) -> None:
    footprint = trace_footprint(One(name), SIZE, 3)
    assert (footprint.receptive_field, footprint.grid) == ((1, 1), SIZE)
    generator = torch.Generator().manual_seed(0)
    images, others = torch.rand(2, 1, 3, *SIZE, generator=generator)
    for row in range(SIZE[0]):
        changed = images.clone()
        changed[..., row, 2] = others[..., row, 2]
        moved = (One(name)(images) != One(name)(changed)).any(dim=1)[0]
        moved &= ~One(name)(images).isnan().any(dim=1)[0]  # the logarithm of a negative number equals nothing
        moved[row, 2] = False
        assert not moved.any()


@pytest.mark.parametrize("name", ALONG_AXES.split())
@pytest.mark.parametrize("dim", [0, 2, 3, -1])
def test_a_reduction_over_positions_is_refused(name: str, dim: int) -> None:
    class Over(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            if name in ("argmax", "cumsum", "log_softmax", "softmax"):
                result: Tensor = getattr(torch.ops.aten, name)(images, dim)
            elif name == "linalg_vector_norm":
                result = torch.ops.aten.linalg_vector_norm(images, 2, [dim], True)
            else:
                result = getattr(images, name)(dim=[dim] if name != "logsumexp" else dim, keepdim=True)
            return result

    with pytest.raises(UsageError, match=f"but {name} in layer 'the network itself'"):
        trace_footprint(Over(), SIZE, 3)


def test_the_table_lists_each_operation_once() -> None:
    names = [*POINTWISE.split(), *ALONG_AXES.split()]
    assert len(names) == len(set(names))
    others = "conv2d max_pool2d avg_pool2d dropout feature_dropout chunk split pad constant_pad_nd view reshape"
    others += " flatten unflatten unsqueeze mT movedim einsum matmul conv1d"
    others += " _assert_tensor_metadata batch_norm layer_norm linear permute transpose cat slice flip"
    assert set(HANDLERS) == {*names, *others.split()}
