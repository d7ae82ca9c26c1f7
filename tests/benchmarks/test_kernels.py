"""A network as products of matrices has the scores of the network itself, and the kernel those of its plain twin."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.errors import UsageError
from bagcert.files import read_json
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from benchmarks.kernels import command
from benchmarks.kernels.layout import Layout
from benchmarks.kernels.network import (
    FP8,
    After,
    FlatNetwork,
    Multiply,
    Product,
    largest_inputs,
    multiply_plainly,
    quantized,
)
from tests.data.tiny_cifar10 import TinyCifar10
from tests.studies.calling import call

CPU, SIZE = torch.device("cpu"), (8, 7)
NETWORKS: dict[str, dict[str, Any]] = {
    "two paths": {"width": 16, "paths": 2},
    "positions": {"width": (16, 32, 48), "paths": 1, "positions": True, "position_rank": 4},
    "positions after the first layer": {"width": 16, "kernels": (1, 1), "paths": 2, "positions": True},
}


def scorer_of(name: str) -> ResidualScorer:
    """Folded, with batch norms that have seen images and add something where a border is padded."""
    torch.manual_seed(0)
    scorer = ResidualConfig(**{"kernels": (3, 1), "shake": False, "step": "logits", **NETWORKS[name]}).build(
        SIZE, (0.4,), (0.3,)
    )
    scorer.train()(torch.rand(8, 3, *SIZE))
    for layer in scorer.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.bias, std=0.3)
    return scorer.eval().folded()


def flat(scorer: ResidualScorer, images: Tensor, dtype: torch.dtype, multiply: Multiply = multiply_plainly) -> Tensor:
    with torch.no_grad():
        return FlatNetwork(scorer, dtype, largest_inputs(scorer, images), multiply)(images, scorer.position_features())


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def test_the_rows_of_a_matrix_are_positions_and_zeros() -> None:
    layout, features = Layout(3, *SIZE), torch.rand(3, 5, *SIZE) + 1
    matrix = layout.spread(features)
    assert matrix.shape == (layout.rows, 5) and torch.equal(layout.gathered(matrix), features)
    assert torch.equal(matrix.any(dim=1), layout.real(CPU)) and layout.real(CPU).sum() == 3 * 8 * 7


@pytest.mark.parametrize("size", [1, 3])
def test_a_product_is_a_convolution(size: int) -> None:
    layout, features = Layout(3, *SIZE), torch.rand(3, 5, *SIZE)
    weight, bias = torch.randn(4, 5, size, size), torch.randn(4)
    product = Product(weight.permute(0, 2, 3, 1).flatten(1), torch.ones(4), bias, size * size, relu=False)
    found = multiply_plainly(layout.spread(features), product, layout, After(unit=1.0, dtype=torch.float32)).narrow
    assert found is not None
    assert torch.allclose(layout.gathered(found), F.conv2d(features, weight, bias, padding=size // 2), atol=1e-5)
    assert not found[~layout.real(CPU)].any()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_flat_network_has_the_logits_of_the_network(name: str) -> None:
    scorer, images = scorer_of(name), torch.rand(3, 3, *SIZE)
    with torch.no_grad():
        wanted = scorer.logits(images)
    for dtype, most in ((torch.bfloat16, 0.01), (FP8, 0.05)):
        assert error(flat(scorer, images, dtype), wanted) < most


@pytest.mark.parametrize("dtype", [torch.bfloat16, FP8])
def test_a_score_sees_its_window_and_no_other_image(dtype: torch.dtype) -> None:
    scorer, images = scorer_of("two paths"), torch.rand(3, 3, *SIZE)
    changed = images.clone()
    changed[1, :, 2, 5] = 1 - changed[1, :, 2, 5]
    network = FlatNetwork(scorer, dtype, largest_inputs(scorer, images), multiply_plainly)
    with torch.no_grad():
        moved = (network(images, None) != network(changed, None)).any(dim=1)
    seen = torch.zeros_like(moved)
    seen[1, 0:5, 3:7] = True  # receptive field 5
    assert moved.any() and not (moved & ~seen).any()


def test_fp8_holds_what_it_was_told_to_hold() -> None:
    values = torch.tensor([-1000.0, -1.0, 0.0, 0.3, 1.0, 2.0])
    assert quantized(values, FP8, 1 / 448).float().div(448).tolist() == pytest.approx(
        [-1, -1, 0, 0.3, 1, 1], rel=1 / 16
    )
    assert torch.equal(quantized(values, torch.bfloat16, 1.0), values.to(torch.bfloat16))


def test_what_does_not_fit_is_refused() -> None:
    for change, words in (({"strides": (2, 1)}, "at stride 1"), ({"channels": 1}, "color images")):
        scorer = ResidualConfig(width=16, kernels=(3, 1), **change).build(SIZE, (0.0,), (1.0,)).eval().folded()
        with pytest.raises(UsageError, match=words):
            FlatNetwork(scorer, FP8, {}, multiply_plainly)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Multiply]:
    """On a GPU as it is, else by Triton's interpreter, which knows no products of bfloat16."""
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    pytest.importorskip("triton")
    from benchmarks.kernels.kernel import Kernel

    return Kernel


@pytest.mark.parametrize("taps", [1, 9])
@pytest.mark.parametrize(("before", "out"), [(16, 16), (96, 80)])
def test_the_kernel_agrees_with_its_twin(kernel: Callable[[], Multiply], taps: int, before: int, out: int) -> None:
    torch.manual_seed(0)
    device, layout = torch.device("cuda" if torch.cuda.is_available() else "cpu"), Layout(3, *SIZE)
    plain = torch.bfloat16 if device.type == "cuda" else torch.float16
    for dtype, unit in ((plain, 1.0), (FP8, 1 / 448)):
        features = torch.where(layout.real(CPU)[:, None], torch.rand(layout.rows, before), 0)
        weight = quantized(torch.randn(out, taps * before), dtype, 4 / 448)
        product = Product(weight, torch.rand(out), torch.randn(out), taps)
        residual, positions = torch.randn(layout.rows, out).to(torch.bfloat16), torch.randn(layout.each, out)
        after = After(True, 1 / 448, dtype, residual, positions)
        at = quantized(features, dtype, unit)
        wanted = multiply_plainly(at, product, layout, after).wide
        placed = Product(weight.to(device), product.scale.to(device), product.bias.to(device), taps)
        there = After(True, 1 / 448, dtype, residual.to(device), positions.to(device))
        found = kernel()(at.to(device), placed, layout, there).wide
        assert wanted is not None and found is not None and error(found.cpu(), wanted) < 0.01


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_kernel_computes_whole_networks(kernel: Callable[[], Multiply], name: str) -> None:
    scorer, images = scorer_of(name).cuda(), torch.rand(3, 3, *SIZE).cuda()
    for dtype in (torch.bfloat16, FP8):
        assert error(flat(scorer, images, dtype, kernel()), flat(scorer, images, dtype)) < 0.02


@pytest.mark.slow
def test_the_command_measures_every_form(
    tiny_cifar10: TinyCifar10, tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path)
    monkeypatch.setattr(command, "SEEN", 4)
    monkeypatch.setitem(command.BATCH, "cpu", 4)
    out, options = tmp_path / "out.json", ("--device", "cpu", "--images", "4", "--data-dir", str(tmp_path))
    assert call(monkeypatch, command.kernels, *options, "--network", "cifar10-small", "--out", str(out)) == 0
    rows = read_json(out)["networks"]
    assert [row["form"] for row in rows] == ["fast", "bfloat16", "fp8"]
    assert all(0 <= row["certified"] <= row["clean"] <= 1 for row in rows)
    assert call(monkeypatch, command.kernels, *options, "--network", "cifar10-smal") == 2
    assert "Did you mean 'cifar10-small'?" in capsys.readouterr().err
