import torch
from torch import Tensor

from bagcert.scorers.residual import shake


def weights_of_one_draw(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """The mixture of two paths that are 1 and 0 throughout, and the gradients of both."""
    torch.manual_seed(seed)
    first, second = torch.ones(3, 2, 4, 4, requires_grad=True), torch.zeros(3, 2, 4, 4, requires_grad=True)
    mixed = shake(first, second)
    mixed.sum().backward()  # type: ignore[no-untyped-call]
    assert first.grad is not None and second.grad is not None
    return mixed.detach(), first.grad, second.grad


def test_one_weight_for_the_whole_batch_and_another_for_the_way_back() -> None:
    mixed, first, second = weights_of_one_draw(0)
    assert bool((mixed == mixed[0, 0, 0, 0]).all() and (first == first[0, 0, 0, 0]).all())
    assert 0 < float(mixed[0, 0, 0, 0]) < 1
    torch.testing.assert_close(first + second, torch.ones_like(first))
    assert not torch.equal(mixed, first)


def test_the_weights_are_uniform_and_follow_the_seed() -> None:
    forth = torch.stack([weights_of_one_draw(seed)[0][0, 0, 0, 0] for seed in range(300)])
    back = torch.stack([weights_of_one_draw(seed)[1][0, 0, 0, 0] for seed in range(300)])
    for weights in (forth, back):
        assert abs(float(weights.mean()) - 0.5) < 0.06  # 3.5 standard errors: 3.5 * 0.289 / 17.3
        assert abs(float(weights.var()) - 1 / 12) < 0.02
    assert abs(float(torch.corrcoef(torch.stack([forth, back]))[0, 1])) < 0.2
    assert torch.equal(weights_of_one_draw(7)[1], weights_of_one_draw(7)[1])


def test_bfloat16_stays_bfloat16() -> None:
    path = torch.randn(2, 3, 4, 4).bfloat16()
    assert shake(path, path).dtype == torch.bfloat16
