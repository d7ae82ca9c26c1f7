import math

import pytest
import torch
from torch import Tensor

from bagcert.scorers import ResidualConfig, ResidualScorer
from bagcert.training.optimizers import AdamConfig, Muon, MuonConfig, orthogonalize

CONFIG = ResidualConfig(classes=3, width=8, kernels=(3, 1), paths=1, shake=False)


@pytest.mark.parametrize("shape", [(4, 16, 16), (2, 8, 72), (3, 72, 8), (1, 5, 1)])
def test_singular_values_come_close_to_one(shape: tuple[int, int, int]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 100
    result = orthogonalize(matrices)
    values = torch.linalg.svdvals(result)
    # The smallest of a square random matrix may still be on its way up.
    assert float(values.max()) < 1.3 and float(values.median()) > 0.6
    # Same singular vectors: the result is the nearest orthogonal matrix, up to those values.
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    rotated = left.mT @ result @ right.mT
    off = rotated - torch.diag_embed(rotated.diagonal(dim1=1, dim2=2))
    assert float(off.abs().max()) < 1e-3


def test_a_zero_gradient_gives_a_zero_update() -> None:
    assert torch.equal(orthogonalize(torch.zeros(2, 4, 6)), torch.zeros(2, 4, 6))


def slow_muon(weight: Tensor, grads: list[Tensor], lr: float, momentum: float) -> Tensor:
    """One weight, step by step, as cifar10-airbench writes it."""
    buffer = torch.zeros_like(weight)
    for grad in grads:
        buffer = momentum * buffer + grad
        update = grad + momentum * buffer
        weight = weight * (math.sqrt(len(weight)) / weight.norm())
        weight = weight - lr * orthogonalize(update.flatten(1)[None])[0].reshape(weight.shape)
    return weight


def test_muon_steps_many_shapes_as_each_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(8, 3, 3, 3), (8, 8, 1, 1), (8, 8, 3, 3), (8, 8, 1, 1), (4, 8, 1, 1)]
    starts = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    grads = [[torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)] for shape in shapes]
    weights = [start.clone().contiguous(memory_format=torch.channels_last).requires_grad_() for start in starts]
    muon = Muon(weights, lr=0.1, momentum=0.9)
    for step in range(3):
        for weight, grad in zip(weights, grads, strict=True):
            weight.grad = grad[step].clone()
        muon.step()
    for weight, start, grad in zip(weights, starts, grads, strict=True):
        torch.testing.assert_close(weight.detach(), slow_muon(start, grad, 0.1, 0.9))


def test_muon_leaves_weights_without_gradient_alone() -> None:
    weight = torch.randn(4, 4, 1, 1, requires_grad=True)
    before = weight.detach().clone()
    Muon([weight], lr=1.0).step()
    assert torch.equal(weight.detach(), before)


def test_every_parameter_has_one_optimizer() -> None:
    scorer = ResidualScorer(CONFIG, (8, 8))
    for config in (AdamConfig(), MuonConfig()):
        held = [
            id(p) for optimizer in config.build(scorer) for group in optimizer.param_groups for p in group["params"]
        ]
        assert sorted(held) == sorted(id(parameter) for parameter in scorer.parameters())
    muon, adam = MuonConfig().build(scorer)
    assert all(weight.dim() == 4 for weight in muon.param_groups[0]["params"])
    assert any(weight is scorer.head.weight for weight in adam.param_groups[0]["params"])
