import pytest
import torch

from bagcert.errors import UsageError
from bagcert.scorers.steps import (
    STEPS,
    HeavisideStep,
    LogitStep,
    ReluStep,
    ScoreStep,
    SoftmaxStep,
    ThresholdStep,
    score_step,
)

EVERY_STEP = pytest.mark.parametrize("step", [*STEPS.values(), ThresholdStep(0.3)], ids=[*STEPS, "threshold"])
ODD = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 88.0, -88.0, 1e30, -1e30, torch.inf, -torch.inf, torch.nan, 0.3])


def test_heaviside_is_one_at_zero() -> None:
    logits = torch.tensor([-1.0, -1e-30, -0.0, 0.0, 1e-30, 2.0])
    assert HeavisideStep().fixed(logits).tolist() == [0, 0, 1, 1, 1, 1]
    assert HeavisideStep().soft(logits).tolist() == [0, 0, 1, 1, 1, 1]


def test_heaviside_has_the_gradient_of_the_sigmoid() -> None:
    logits = torch.linspace(-6, 6, 25, requires_grad=True)
    HeavisideStep().soft(logits).sum().backward()  # type: ignore[no-untyped-call]
    s = logits.detach().sigmoid()
    torch.testing.assert_close(logits.grad, s * (1 - s))


@EVERY_STEP
def test_integers_are_the_soft_scores_in_units(step: ScoreStep) -> None:
    logits = 3 * torch.randn(4, 5, 6, 7, generator=torch.Generator().manual_seed(0))
    fixed = step.fixed(logits)
    assert fixed.dtype == torch.int32
    seen = logits.clamp(min=0) if isinstance(step, ReluStep) else step.soft(logits)  # whose loss sees a smooth one
    torch.testing.assert_close(fixed / step.unit, seen, atol=0.5 / step.unit, rtol=0)


def test_the_loss_sees_evidence_that_every_class_can_learn_from() -> None:
    logits = torch.tensor([-4.0, 0.0, 4.0], requires_grad=True)
    soft = score_step("relu").soft(logits)
    assert bool(((soft - logits.clamp(min=0)).detach() <= 0.7).all()) and bool((soft > logits.clamp(min=0)).all())
    soft.sum().backward()  # type: ignore[no-untyped-call]
    torch.testing.assert_close(logits.grad, logits.detach().sigmoid())


@EVERY_STEP
def test_no_logit_leaves_the_bounds(step: ScoreStep) -> None:
    fixed = step.fixed(ODD.reshape(1, 3, 2, 2))
    low, high = step.bounds
    assert low <= int(fixed.min()) and int(fixed.max()) <= high


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_the_place_in_a_tensor_never_decides_how_a_score_is_rounded(name: str) -> None:
    """torch computes the last few numbers of a tensor in another way: the same logits there gave other integers."""
    step = score_step(name)
    low, high = step.bounds
    half = (torch.arange(low, high, dtype=torch.float64) + 0.5) / step.unit
    edges = (half.logit() if name == "sigmoid" else half.atanh() + 1).float()
    near = [edges]
    for way in (-torch.inf, torch.inf):
        moved = edges
        for _ in range(2):
            moved = moved.nextafter(torch.tensor(way))
            near.append(moved)
    logits = torch.cat(near)
    alone = torch.cat([step.fixed(each) for each in logits.split(1)])  # type: ignore[no-untyped-call]
    assert torch.equal(step.fixed(logits), alone)


@pytest.mark.parametrize("step", [SoftmaxStep(), ThresholdStep(0.3)], ids=["softmax", "threshold"])
def test_the_place_in_a_batch_never_decides_how_a_softmax_is_rounded(step: ScoreStep) -> None:
    """With three threads torch computes a few images of a batch in another way."""
    draw, threads = torch.Generator().manual_seed(0), torch.get_num_threads()
    others = 3 * torch.randn(64, 9, 5, 5, generator=draw)
    edges = (torch.randint(1, 1023, (64, 5, 5), generator=draw) + 0.5) / 1024 if step.unit > 1 else torch.tensor(0.3)
    first = edges.double().logit() + others.double().logsumexp(dim=1)  # the softmax of class 0 is at an edge
    torch.set_num_threads(3)
    try:
        for logits in torch.cat([first[:, None].float(), others], dim=1):
            fixed = step.fixed(logits.repeat(16, 1, 1, 1))
            assert torch.equal(fixed, fixed[:1].expand_as(fixed))
    finally:
        torch.set_num_threads(threads)


def test_large_logits_saturate() -> None:
    assert LogitStep().fixed(torch.tensor([5000.0, -5000.0, 1.5])).tolist() == [2**20, -(2**20), 384]


def test_clipped_and_cut_scores() -> None:
    logits = torch.tensor([-200.0, 0.0, 1.0, 200.0])
    assert score_step("tanh").fixed(logits).tolist() == [-1024, -780, 0, 1024]  # tanh(-1) = -0.7616
    assert score_step("relu").fixed(logits).tolist() == [0, 0, 256, 2**14]


def test_softmax_is_over_the_classes() -> None:
    soft = SoftmaxStep().soft(torch.randn(2, 5, 3, 3))
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(2, 3, 3))


def test_a_softmax_of_just_theta_is_a_vote() -> None:
    """Of several classes too; just below, none."""
    even = torch.zeros(1, 4, 1, 1)
    assert ThresholdStep(0.25).fixed(even).sum() == 4
    assert ThresholdStep(0.25 + 1e-7).fixed(even).sum() == 0
    assert ThresholdStep(0.25 + 1e-9).fixed(even).sum() == 4, "θ is the nearest float32"


@EVERY_STEP
def test_steps_take_bfloat16_and_give_float32(step: ScoreStep) -> None:
    assert step.soft(torch.randn(1, 2, 3, 3).bfloat16()).dtype == torch.float32


@pytest.mark.slow
@EVERY_STEP
def test_compiled_step_has_the_same_values_and_gradients(step: ScoreStep) -> None:
    logits = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    results = []
    for soft in (step.soft, torch.compile(step.soft, fullgraph=True, backend="aot_eager")):
        leaf = logits.clone().requires_grad_()
        value = soft(leaf)
        (value * torch.arange(96.0).reshape(value.shape)).sum().backward()  # type: ignore[no-untyped-call]
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1])


def test_unknown_step_is_named() -> None:
    with pytest.raises(UsageError, match=r"Unknown score step 'heavyside'\. Did you mean 'heaviside'\? Known: "):
        score_step("heavyside")
