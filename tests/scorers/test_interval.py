"""Interval bounds: they hold what the network computes, are exact where they can be, and prove no more than is so."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers import interval
from bagcert.scorers.interval import SLACK, Box, IntervalConfig, IntervalScorer, forward, least_margins, through
from bagcert.threats import parse_threat
from bagcert.training.losses import IntervalLoss
from tests.gpu_autocast import gpu_autocast

SIZE = (3, 4)
NAMES = ("a", "b", "c")
MEAN, STD = (0.4, 0.5), (0.2, 0.3)


def small(seed: int) -> IntervalScorer:
    """Random weights; the classes are on a par for a gray image."""
    torch.manual_seed(seed)
    config = IntervalConfig(3, 2, widths=(4, 5), strides=(1, 2), features=6, patch=(1, 1), placements=6)
    scorer = IntervalScorer(config, SIZE, MEAN, STD).eval()
    with torch.no_grad():
        scorer.head.bias.sub_(scorer.logits(torch.full((1, 2, *SIZE), 0.5))[0, :, 0, 0])
    return scorer


def some_images(count: int) -> Tensor:
    """From dark to bright, under noise."""
    noise = torch.rand(count, 2, *SIZE, generator=torch.Generator().manual_seed(0))
    return 0.8 * torch.linspace(0, 1, count)[:, None, None, None] + 0.2 * noise


@pytest.mark.parametrize(
    "layer", [nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Linear(24, 5)]
)
def test_a_linear_layer_reaches_its_bounds_and_no_further(layer: nn.Conv2d | nn.Linear) -> None:
    """Some corner of the box reaches each end; the slack widens it by a hair."""
    generator = torch.Generator().manual_seed(0)
    center = torch.randn(1, 2, *SIZE, generator=generator, dtype=torch.float64)
    radius = torch.rand(1, 2, *SIZE, generator=generator, dtype=torch.float64) * (torch.arange(12).view(SIZE) < 5)
    corners = torch.tensor(list(product((-1.0, 1.0), repeat=10)), dtype=torch.float64).view(-1, 2, 5)
    signs = torch.zeros(len(corners), 2, 12, dtype=torch.float64)
    signs[:, :, :5] = corners
    reached = forward(layer, center + radius * signs.view(-1, 2, *SIZE))
    plain, held = (through(layer, Box(center, radius), slack) for slack in (0.0, SLACK))
    torch.testing.assert_close(reached.amax(dim=0, keepdim=True), plain.center + plain.radius)
    torch.testing.assert_close(reached.amin(dim=0, keepdim=True), plain.center - plain.radius)
    assert bool(((reached - held.center).abs() <= held.radius).all())
    torch.testing.assert_close(held.radius, plain.radius, rtol=1e-8, atol=1e-8)


def test_relu_of_a_box() -> None:
    box = Box(torch.tensor([-3.0, 0.0, 3.0]), torch.tensor([1.0, 2.0, 1.0])).relu()
    assert (box.center - box.radius).tolist() == [0, 0, 2]
    assert (box.center + box.radius).tolist() == [0, 2, 4]


def test_the_slack_covers_every_order_of_summation() -> None:
    """Sums that cancel: computed in another order they differ, and no order leaves the box of a single point."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Linear(4000, 1).double()
    values = torch.randn(1, 4000, generator=generator, dtype=torch.float64) * 1e8
    with torch.no_grad():
        box = through(layer, Box(values, torch.zeros_like(values)), SLACK)
        products = torch.cat([(values * layer.weight)[0], layer.bias])
    orders = (torch.randperm(4001, generator=generator) for _ in range(30))
    totals = {float(products[order].cumsum(dim=0)[-1]) for order in orders}
    assert len(totals) > 5
    assert all(abs(total - float(box.center)) <= float(box.radius) for total in totals)
    assert float(box.radius) < 1e-9 * float(products.abs().sum())


def test_margins_of_two_classes_are_bounded_together() -> None:
    head = nn.Linear(2, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[5.0, 1.0], [5.0, 0.0]]))
        head.bias.copy_(torch.tensor([0.5, 0.0]))
    box = Box(torch.tensor([[7.0, 1.0]]), torch.tensor([[100.0, 1.0]]))
    margins = least_margins(head, box, slack=0.0)
    assert margins.tolist() == [[[0.0, 0.5], [-2.5, 0.0]]]  # the first feature is shared, and cancels
    held = least_margins(head, box, SLACK)
    assert bool((held < margins).all()) and bool((held > margins - 1e-5).all())


@pytest.mark.parametrize("seed", range(4))
def test_margins_hold_for_every_patch_that_was_tried(seed: int) -> None:
    scorer, images = small(seed), some_images(3)
    views = torch.arange(len(scorer.hidden))
    margins = scorer._margins(images.double(), views, torch.ones(()), SLACK)  # b n of over
    masks = scorer.hidden.masks(views)
    ends = torch.tensor(list(product((0.0, 0.5, 1.0), repeat=2)))
    for place, mask in enumerate(masks):
        for pixel in ends:
            attacked = torch.where(mask, pixel[:, None, None], images)
            logits = scorer.logits(attacked)[..., 0, 0]
            assert bool((margins[:, place] <= logits[:, :, None] - logits[:, None, :]).all())


def learned(seed: int) -> IntervalScorer:
    """Trained to tell dark from gray and bright: bounds of random weights prove nothing."""
    scorer, images = small(seed).train(), some_images(60)
    labels = torch.arange(60) // 20
    optimizer = torch.optim.Adam(scorer.parameters(), lr=0.03)
    for step in range(80):
        scorer.begin_step(step / 80)
        loss = IntervalLoss()(scorer(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return scorer.eval()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_certified_images_withstand_every_patch_of_a_grid(seed: int) -> None:
    scorer, images = learned(seed), some_images(150)
    defense = Defense.build(scorer, "unanimous", "1x1", NAMES)
    certificate = defense.certify(images)
    flipped = torch.zeros(len(images), dtype=torch.bool)
    for row, column, _, _ in (box for box in parse_threat("1x1", SIZE).placements()):
        for pixel in product((0.0, 0.3, 0.7, 1.0), repeat=2):
            attacked = images.clone()
            attacked[:, :, row, column] = torch.tensor(pixel)
            flipped |= scorer.logits(attacked)[..., 0, 0].argmax(dim=1) != certificate.predicted
    assert not bool((flipped & certificate.certified).any())
    assert 20 < int(certificate.certified.sum()) < 148 and bool(flipped.any())


@pytest.mark.parametrize("patch", [(1, 1), (1, 2)])
def test_no_attack_of_a_whole_small_world_changes_what_is_certified(patch: tuple[int, int]) -> None:
    """Every image of six pixels and three levels: attacked images, whatever is painted where, are of this world too."""
    levels, size = (0.0, 0.5, 1.0), (2, 3)
    world = torch.tensor(list(product(levels, repeat=6)))
    certified = changed = 0
    for seed in range(3):
        torch.manual_seed(seed)
        config = IntervalConfig(2, 1, widths=(3,), strides=(1,), features=4, patch=(1, 1))
        scorer = IntervalScorer(config, size, (0.5,), (0.5,)).eval()
        with torch.no_grad():  # one class is ahead of a gray image by a little
            scorer.head.bias.sub_(scorer.logits(torch.full((1, 1, *size), 0.5))[0, :, 0, 0])
            scorer.head.bias[seed % 2] += 0.1
        defense = Defense.build(scorer, "unanimous", patch, NAMES[:2], batch_size=len(world))
        certificate = defense.certify(world.view(-1, 1, *size))
        flips = torch.zeros(len(world), dtype=torch.bool)
        for row, column, height, width in parse_threat(patch, size).placements():
            kept = torch.ones(size, dtype=torch.bool)
            kept[row : row + height, column : column + width] = False
            _, group = world[:, kept.flatten()].unique(dim=0, return_inverse=True)  # type: ignore[no-untyped-call]
            ones = torch.zeros(int(group.max()) + 1).index_add_(0, group, certificate.predicted.float())
            share = ones / torch.bincount(group)  # of the images that differ inside the patch alone
            flips |= (share[group] > 0) & (share[group] < 1)
        assert not bool((flips & certificate.certified).any())
        certified, changed = certified + int(certificate.certified.sum()), changed + int(flips.sum())
    assert certified > 50 and changed > 50


def test_the_plain_argmax_is_predicted_and_a_tie_goes_to_the_lowest() -> None:
    scorer, images = small(0), some_images(40)
    defense = Defense.build(scorer, "unanimous", "2x2", NAMES)
    assert torch.equal(defense.predict(images), scorer.logits(images)[..., 0, 0].argmax(dim=1))
    with torch.no_grad():
        scorer.head.weight.zero_()
        scorer.head.bias.copy_(torch.tensor([0.0, 1.0, 1.0]))
    certificate = defense.certify(images)
    assert certificate.predicted.tolist() == [1] * 40 and not bool(certificate.certified.any()), "a tie is no proof"
    with torch.no_grad():
        scorer.head.bias.copy_(torch.tensor([0.0, 1.0, 1.001]))
    assert bool(defense.certify(images).certified.all())


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, images = small(1), some_images(4)
    whole = scorer.scores(images)
    monkeypatch.setitem(interval.BOXES_AT_ONCE, "cpu", 9)
    assert torch.equal(scorer.scores(images), whole)


def test_bounds_are_computed_without_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Fourier transform is off by more than the sums that the slack is made for."""
    seen, scorer = [], small(0)
    margins = scorer._margins

    def watched(*arguments: Any, **more: Any) -> Tensor:
        seen.append(torch.backends.cudnn.enabled)
        return margins(*arguments, **more)

    monkeypatch.setattr(scorer, "_margins", watched)
    monkeypatch.setattr(torch, "autocast", gpu_autocast)
    with gpu_autocast():  # as all defenses are compared in, each in its own arithmetic
        scorer.scores(some_images(2))
    assert seen and not any(seen) and torch.backends.cudnn.enabled


def test_training_opens_the_rectangles_step_by_step() -> None:
    scorer, images = small(2), some_images(2)
    plain = scorer.logits(images)[..., 0, 0].detach().float()
    scorer.train()
    widths = []
    for progress in (0.0, 0.05, 0.3, 0.655, 1.0):
        scorer.begin_step(progress)
        torch.manual_seed(0)
        margins = scorer(images)  # b of over placements
        assert margins.shape == (2, 3, 3, 6)
        widths.append(float((plain[:, :, None] - plain[:, None, :] - margins.detach().amin(dim=3)).amax()))
    assert widths[0] == pytest.approx(0, abs=1e-5) and widths[1] == pytest.approx(0, abs=1e-5)
    assert 1e-4 < widths[2] < widths[3] / 20 and widths[3] == widths[4]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"strides": (1, 1)}, "The network must have as many strides as widths, and no number below 1"),
        ({"ramp": (0.5, 0.5)}, r"The value of network.ramp must be two growing shares of the run, but is \[0.5, 0.5\]"),
        ({"strides": (1, 1, 1, 1, 1)}, "Each sum of a layer must have fewer than 131072 terms, but one has 131073"),
        ({"features": 2**17}, "Each sum of a layer must have fewer than 131072 terms, but one has 131073"),
    ],
)
def test_impossible_networks_are_refused(config: dict[str, tuple[float, ...]], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        IntervalConfig(**config).build((32, 32), (0.0,), (1.0,))  # type: ignore[arg-type]
