import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.scorers import ResidualConfig, ResidualScorer
from bagcert.training.optimizers import AdamConfig, Muon, MuonConfig, ScheduleConfig, orthogonalize, set_rates

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


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_schedule_rises_then_falls_to_zero(shape: str) -> None:
    schedule = ScheduleConfig(shape=shape, epochs=50, warmup_epochs=5)
    factors = [schedule.factor(step, 1000) for step in range(1000)]
    assert factors[0] == pytest.approx(0.01) and factors[49] == pytest.approx(0.5)
    assert max(factors) == pytest.approx(1) and factors.index(max(factors)) in (98, 99)
    assert all(early < late for early, late in pairwise(factors[:99]))
    assert all(early > late for early, late in pairwise(factors[99:]))
    assert 0 < factors[-1] < 2e-3
    assert factors[549] == pytest.approx(0.5, abs=2e-3)


def test_schedule_keeps_its_shape_for_any_number_of_steps() -> None:
    schedule = ScheduleConfig(shape="linear", epochs=10, warmup_epochs=1)
    for steps in (1, 2, 3, 7, 10_000):
        factors = [schedule.factor(step, steps) for step in range(steps)]
        assert all(0 < factor <= 1 for factor in factors)
    assert ScheduleConfig(shape="linear", epochs=10, warmup_epochs=0).factor(0, 10) == pytest.approx(10 / 11)


def test_rates_are_shares_of_the_built_ones() -> None:
    optimizers = MuonConfig(lr=0.03, other_lr=0.002).build(ResidualScorer(CONFIG, (8, 8)))
    for factor in (0.5, 0.1, 1.0):
        set_rates(optimizers, factor)
        rates = [group["lr"] for optimizer in optimizers for group in optimizer.param_groups]
        assert rates == pytest.approx([0.03 * factor, 0.002 * factor])


def test_impossible_schedules_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Unknown schedule.shape 'step'\. .*Known: cosine, linear\."):
        ScheduleConfig(shape="step")
    with pytest.raises(UsageError, match=r"schedule.warmup_epochs must be at least 0 and below schedule.epochs = 5"):
        ScheduleConfig(epochs=5, warmup_epochs=5)
    with pytest.raises(UsageError, match=r"but is 2\.5\. Set both: --set schedule\.warmup_epochs=0\.2$"):
        ScheduleConfig(epochs=2, warmup_epochs=2.5)
