"""Numbers near the limits: nothing wraps around, whatever type the sums are held in."""

import pytest
import torch

from bagcert.certify import certify_scores
from bagcert.errors import UsageError
from bagcert.rules import (
    EveryRegion,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    capped_sum,
    read_scores,
    weighted_sum,
)

RULES: list[Rule] = [LargestRegion(), EveryRegion(), Monotone(capped_sum(2**50)), Masked(), TwoMask()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("power", [29, 30, 31, 32, 33, 40])
def test_far_bounds_prove_nothing_about_small_scores(rule: Rule, power: int) -> None:
    """Scores of 0 and 1 that might have been huge: a patch of one pixel outweighs the whole map."""
    scores = torch.zeros(1, 2, 8, 8, dtype=torch.int64)
    scores[:, 1] = 1
    certificate = certify_scores(scores, "1x1", receptive_field=3, rule=rule, bounds=(0, 2**power))
    assert certificate.predicted.tolist() == [1]
    assert certificate.certified.tolist() == [rule.name in ("masked", "two-mask")]  # these use no upper bound
    if rule.name == "largest-region":
        assert certificate.lead is not None and certificate.lead.tolist() == [64 - 2 * 9 * 2**power]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("scale", [1, 2**20, 2**22, 2**25, 2**40])
def test_scores_of_every_size_give_the_scaled_certificate(rule: Rule, scale: int) -> None:
    """int32 and int64 sums alike: all leads grow with the scores."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 2, (20, 3, 8, 8), generator=generator)
    scores[:, 2][torch.rand(20, 8, 8, generator=generator) < torch.linspace(0, 1, 20)[:, None, None]] = 1
    small = certify_scores(scores, "2x1", receptive_field=3, rule=rule)
    large = certify_scores(scores * scale, "2x1", receptive_field=3, rule=rule, bounds=(0, scale))
    assert torch.equal(small.predicted, large.predicted)
    assert torch.equal(small.certified, large.certified)
    assert small.lead is not None and large.lead is not None
    assert torch.equal(small.lead * scale, large.lead)


@pytest.mark.parametrize("weights", [torch.tensor([[1, 1025]]), torch.tensor([[-1, 1]]), torch.tensor([[0.5, 1.0]])])
def test_weights_that_could_overflow_are_refused(weights: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"Weights must be whole numbers in 0\.\.1024\. Scale and round them\."):
        weighted_sum(weights)


@pytest.mark.parametrize("high", [2**25, 2**30 // 7, 2**30 // 7 + 1, (2**31 - 1) // 7, 2**31 // 7 + 1, 2**40])
def test_a_patch_may_outweigh_int32(high: int) -> None:
    """All of the predicted class lies under a patch of seven cells, all of its rival beside it."""
    score = 2**25 - 1
    scores = torch.tensor([[[[score] * 7 + [0]], [[0] * 7 + [score]]]])
    certificate = certify_scores(scores, "1x7", receptive_field=1, rule="every-region", bounds=(0, high))
    assert certificate.predicted.tolist() == [0] and certificate.certified.tolist() == [False]
    assert certificate.lead is not None and certificate.lead.tolist() == [-7 * high - score]


@pytest.mark.parametrize(
    ("largest", "dtype"), [(1, torch.int32), (2**24 - 1, torch.int32), (2**24, torch.int64), (2**46 - 1, torch.int64)]
)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("slack", [0, 1])
def test_scores_are_held_in_a_type_that_leaves_room_for_sums(
    largest: int, dtype: torch.dtype, sign: int, slack: int
) -> None:
    """Eight times the sum of a map of 2x8 of the largest score stays below 2**31, or 2**53."""
    values = torch.zeros(1, 2, 2, 8, dtype=torch.int64)
    values[0, 1, 0, 5] = sign * (largest - slack)
    scores = read_scores(values, bounds=None, slack=slack)
    assert scores.values.dtype == scores.low.dtype == scores.high.dtype == dtype
    assert torch.equal(scores.values.long(), values)
    assert scores.guarded == bool(slack)


@pytest.mark.parametrize("sign", [1, -1])
def test_scores_beyond_every_type_are_refused(sign: int) -> None:
    words = "Scores must lie within ±70368744177664, but reach 70368744177664. Use a coarser fixed-point grid."
    values = torch.zeros(1, 2, 2, 8, dtype=torch.int64)
    values[0, 1, 0, 5] = sign * 2**46
    for bounds in (None, (-(2**46), 2**46)):
        with pytest.raises(UsageError) as error:
            read_scores(values, bounds=bounds)
        assert str(error.value) == words
    with pytest.raises(UsageError) as error:
        read_scores(values * 0, bounds=(min(0, sign * 2**46), max(0, sign * 2**46)))
    assert str(error.value) == words


def test_small_scores_within_far_bounds_are_added_in_int32() -> None:
    assert read_scores(torch.ones(1, 2, 2, 8), bounds=(0, 2**40)).values.dtype == torch.int32
