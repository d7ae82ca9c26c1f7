"""Each loss against a slow version that follows its formula cell by cell, and its gradient against differences."""

from itertools import product

import pytest
import torch
from torch import Tensor

from bagcert.threats import Footprint, Layer, parse_threat
from bagcert.training.losses import (
    CrossEntropyLoss,
    DetectLoss,
    IntervalLoss,
    Loss,
    MarginLoss,
    MaskedLoss,
    TwoMaskLoss,
    box_sums,
    greedy_mask,
    lead_of,
    window_mask,
)

Cells = set[tuple[int, int]]


def sample(seed: int, grid: tuple[int, int] = (6, 7), classes: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(5, classes, *grid, generator=generator, dtype=torch.float64)
    return scores, torch.randint(classes, (5,), generator=generator)


def windows(window: tuple[int, int], grid: tuple[int, int]) -> list[Cells]:
    """All windows inside the grid, in row order."""
    starts = product(range(grid[0] - window[0] + 1), range(grid[1] - window[1] + 1))
    return [
        {(top + row, left + column) for row in range(window[0]) for column in range(window[1])} for top, left in starts
    ]


def slow_lead(scores: Tensor, label: int, without: Cells) -> float:
    """min over rivals of Σ Δ over the cells that are not in `without`."""
    leads = []
    for rival in range(len(scores)):
        if rival != label:
            delta = scores[label] - scores[rival]
            cells = product(range(delta.shape[0]), range(delta.shape[1]))
            leads.append(sum(float(delta[cell]) for cell in cells if cell not in without))
    return min(leads)


def slow_greedy(scores: Tensor, label: int, window: tuple[int, int], masks: int) -> Cells:
    masked: Cells = set()
    for _ in range(masks):
        masked |= min(
            windows(window, (scores.shape[1], scores.shape[2])), key=lambda w: slow_lead(scores, label, masked | w)
        )
    return masked


@pytest.mark.parametrize("seed", range(5))
def test_margin(seed: int) -> None:
    scores, labels = sample(seed)
    for margin in (0.5, 0.02):
        leads = [slow_lead(one, int(label), set()) / 42 for one, label in zip(scores, labels, strict=True)]
        expected = -sum(min(lead, margin) for lead in leads) / 5
        assert float(MarginLoss(margin=margin)(scores, labels)) == pytest.approx(expected)


def test_one_hot_penalty_is_on_means() -> None:
    scores, labels = sample(0)
    means = scores.mean(dim=(2, 3))
    top = means.topk(2, dim=1).values
    penalty = float(MarginLoss(one_hot=2.0)(scores, labels) - MarginLoss()(scores, labels))
    assert penalty == pytest.approx(float(2 * (top[:, 1] - top[:, 0]).mean()))
    perfect = torch.zeros(1, 3, 4, 4)
    perfect[:, 1] = 1
    assert float(MarginLoss(margin=0.25, one_hot=1.0)(perfect, torch.tensor([1]))) == -1.25


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("window", [(2, 3), (1, 1), (5, 6)])
@pytest.mark.parametrize(("kind", "masks"), [(DetectLoss, 1), (TwoMaskLoss, 2)])
def test_cross_entropy_outside_the_worst_masks(
    seed: int, window: tuple[int, int], kind: type[TwoMaskLoss], masks: int
) -> None:
    scores, labels = sample(seed)
    logits = 4 * scores - 2
    kept = greedy_mask(logits, labels, window, masks)
    means = []
    for one, label, keeps in zip(logits, labels, kept, strict=True):
        masked = slow_greedy(one, int(label), window, masks)
        cells = {(row, column) for row, column in product(range(6), range(7)) if keeps[0, row, column] == 0}
        assert cells == masked
        left = [one[:, row, column] for row, column in product(range(6), range(7)) if (row, column) not in masked]
        means.append(torch.stack(left).mean(dim=0))
    masked_loss = torch.nn.functional.cross_entropy(torch.stack(means), labels, label_smoothing=0.1)
    plain_loss = torch.nn.functional.cross_entropy(logits.mean(dim=(2, 3)), labels, label_smoothing=0.1)
    torch.testing.assert_close(kind(window=window, smoothing=0.1)(logits, labels), masked_loss)
    mixed = kind(window=window, smoothing=0.1, weight=0.3)(logits, labels)
    torch.testing.assert_close(mixed, 0.3 * masked_loss + 0.7 * plain_loss)


@pytest.mark.parametrize("window", [(2, 3), (1, 1), (6, 7)])
def test_masked_takes_the_heaviest_window_from_the_true_class(window: tuple[int, int]) -> None:
    scores, labels = sample(0)
    scores = scores - 0.3  # evidence below 0 counts as none
    left = scores.clamp(min=0).sum(dim=(2, 3))
    for place, label in enumerate(labels.tolist()):
        of_label = scores[place, label].clamp(min=0)
        left[place, label] -= max(sum(float(of_label[cell]) for cell in cells) for cells in windows(window, (6, 7)))
    expected = torch.nn.functional.cross_entropy(left / 42, labels)
    torch.testing.assert_close(MaskedLoss(window=window)(scores, labels), expected)


def test_interval_takes_the_worst_placement_for_each_rival() -> None:
    margins = torch.full((1, 3, 3, 2), 9.0)  # b of over placements
    margins[0, 1] = torch.tensor([[4.0, 2.0], [0.0, 0.0], [-1.0, 3.0]])
    expected = torch.nn.functional.cross_entropy(torch.tensor([[-2.0, 0.0, 1.0]]), torch.tensor([1]))
    torch.testing.assert_close(IntervalLoss()(margins, torch.tensor([1])), expected)


def test_two_masks_over_everything_leave_a_finite_loss() -> None:
    scores, labels = sample(0)
    assert float(TwoMaskLoss(window=(6, 7))(scores, labels)) == pytest.approx(float(torch.tensor(4.0).log()))


LOSSES: list[Loss] = [
    MarginLoss(margin=0.05, one_hot=1.0),
    TwoMaskLoss(window=(2, 3), smoothing=0.1, weight=0.7),
    DetectLoss(window=(2, 3), smoothing=0.1, weight=0.7),
    MaskedLoss(window=(2, 3)),
    CrossEntropyLoss(),
    IntervalLoss(),
]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_gradients_are_those_of_finite_differences(loss: Loss) -> None:
    scores, labels = sample(3, grid=(4, 5))
    assert torch.autograd.gradcheck(lambda values: loss(values, labels), scores.requires_grad_())


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_losses_compile_as_one_graph(loss: Loss) -> None:
    scores, labels = sample(4)
    compiled = torch.compile(loss.__call__, fullgraph=True, backend="aot_eager")
    results = []
    for call in (loss, compiled):
        leaf = scores.clone().requires_grad_()
        value = call(leaf, labels)
        value.backward()  # type: ignore[no-untyped-call]
        results.append((value.detach(), leaf.grad))
    torch.testing.assert_close(results[0], results[1])


def test_tied_rivals_share_the_gradient() -> None:
    sums = torch.tensor([[3.0, 1.0, 1.0, 0.0]], requires_grad=True)
    lead_of(sums, torch.tensor([0])).sum().backward()  # type: ignore[no-untyped-call]
    assert sums.grad is not None
    assert sums.grad.tolist() == [[1.0, -0.5, -0.5, 0.0]]


def test_box_sums_of_whole_numbers_are_exact() -> None:
    maps = torch.randint(-(2**12), 2**12, (2, 3, 32, 32)).float()
    expected = maps.double().unfold(2, 11, 1).unfold(3, 9, 1).sum(dim=(-1, -2))
    assert torch.equal(box_sums(maps, (11, 9)).double(), expected)


def test_window_masks_follow_the_order_of_box_sums() -> None:
    maps = torch.randn(1, 1, 6, 7, dtype=torch.float64)
    masks = window_mask(torch.arange(5 * 5), (2, 3), (6, 7))
    torch.testing.assert_close((maps * masks).sum(dim=(1, 2, 3)), box_sums(maps, (2, 3)).flatten())


def test_a_window_is_never_empty() -> None:
    blind = Footprint.identity((8, 8)).then(Layer(kernel=1, stride=4))
    corner = torch.zeros(1, 8, 8, dtype=torch.bool)
    corner[0, 1, 1] = True  # no output sees this pixel
    assert TwoMaskLoss().against(parse_threat(corner, (8, 8)), blind) == TwoMaskLoss(window=(1, 1))
