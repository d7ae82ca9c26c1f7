"""Weights in few bytes come back within half a step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagcert.errors import UsageError
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.weights import SCALE, restored, rounded


@given(st.integers(0, 2**32 - 1), st.floats(-20, 20))
def test_matrices_come_back_within_half_a_step_of_their_output(seed: int, power: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, 3, 2, 2, generator=generator) * 2**power
    weight[0] = 0
    stored = rounded({"conv.weight": weight})
    assert stored["conv.weight"].dtype == torch.int8
    back = restored(stored)
    assert back.keys() == {"conv.weight"} and back["conv.weight"].dtype == torch.float32
    step = weight.abs().amax(dim=(1, 2, 3), keepdim=True) / 127
    assert bool(((back["conv.weight"] - weight).abs() <= step * 0.5001).all())
    assert torch.equal(back["conv.weight"][0], torch.zeros(3, 2, 2))


def test_rounding_twice_is_rounding_once() -> None:
    weight = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    once = restored(rounded({"weight": weight}))["weight"]
    assert not torch.equal(once, weight)
    torch.testing.assert_close(restored(rounded({"weight": once}))["weight"], once, rtol=1e-6, atol=0)


def test_everything_else_is_float16_or_as_it_was() -> None:
    config = EnsembleConfig(width=4, kernels=(3, 1), paths=1, shake=False, positions=True, members=2)
    tensors = config.build((6, 6), (0.3,), (0.2,)).state_dict()
    stored = rounded(tensors)
    kinds = {name: value.dtype for name, value in stored.items()}
    assert kinds["positions"] == kinds["others.0.positions"] == torch.int8
    assert kinds["stem.1.weight"] == kinds["head.bias"] == torch.float16
    assert all(kinds[name] == torch.int64 for name in kinds if name.endswith("num_batches_tracked"))
    matrices = [name for name in kinds if kinds[name] == torch.int8]
    assert matrices and {name + SCALE for name in matrices} == {name for name in kinds if name.endswith(SCALE)}
    back = restored(stored)
    assert {name: value.shape for name, value in back.items()} == {name: value.shape for name, value in tensors.items()}
    assert all(torch.equal(value, back[name]) for name, value in stored.items() if kinds[name] == torch.float16)


def test_weights_beyond_float16_are_refused() -> None:
    for wrong in (1e6, float("nan")):
        with pytest.raises(UsageError, match=r"Some weights are not finite in float16\. Train again"):
            rounded({"bias": torch.tensor([wrong])})


def test_matrices_without_their_scales_are_refused() -> None:
    stored = rounded({"weight": torch.ones(3, 2)})
    for wrong in (
        {"weight": stored["weight"]},
        {**stored, "weight" + SCALE: torch.ones(2)},
        {**stored, "weight" + SCALE: torch.full((3,), float("nan"))},
        {**stored, "other" + SCALE: torch.ones(3)},
        {"weight": torch.ones(3, 2), "weight" + SCALE: torch.ones(3)},
    ):
        with pytest.raises(
            UsageError, match="Each output of each 8-bit matrix must have a finite scale, but the scales differ"
        ):
            restored(wrong)
