"""Ablations: what each one sees, how it votes, and what a patch can do to all of them."""

import pytest
import torch
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.scorers import ablation
from bagcert.scorers.ablation import AblationConfig, AblationScorer
from bagcert.threats import parse_threat

SIZE = (6, 7)
KEPT = pytest.mark.parametrize("kept", [(6, 2), (2, 7), (3, 2)], ids=["column", "row", "block"])


def small(kept: tuple[int, int], theta: float = 0.3) -> AblationScorer:
    """A small scorer whose batch norms have seen something, so that no unit is dead."""
    torch.manual_seed(0)
    config = AblationConfig(classes=3, channels=2, kept=kept, theta=theta, width=4, blocks=(1, 1))
    scorer = AblationScorer(config, SIZE)
    scorer.classifier(torch.rand(64, 4, *SIZE))
    return scorer.eval()


def some_images(count: int = 3) -> Tensor:
    return torch.rand(count, 2, *SIZE, generator=torch.Generator().manual_seed(1))


def kept_pixels(kept: tuple[int, int]) -> list[list[set[tuple[int, int]]]]:
    """By the definition: from its own row and column on, wrapping; an axis that is kept whole has one entry."""
    starts = [range(size if side < size else 1) for side, size in zip(kept, SIZE, strict=True)]
    return [
        [
            {((top + down) % SIZE[0], (left + right) % SIZE[1]) for down in range(kept[0]) for right in range(kept[1])}
            for left in starts[1]
        ]
        for top in starts[0]
    ]


@KEPT
def test_logits_are_those_of_each_ablated_image(kept: tuple[int, int]) -> None:
    scorer, images = small(kept), some_images()
    logits = scorer.logits(images)
    expected = torch.empty_like(logits)
    for i, line in enumerate(kept_pixels(kept)):
        for j, pixels in enumerate(line):
            shown = torch.zeros(len(images), 4, *SIZE)
            for y, x in pixels:
                shown[:, :2, y, x], shown[:, 2:, y, x] = images[:, :, y, x], 1 - images[:, :, y, x]
            expected[:, :, i, j] = scorer.classifier(shown)
    torch.testing.assert_close(logits, expected)
    softmax = logits.softmax(dim=1)
    assert torch.equal(scorer.scores(images), (softmax >= 0.3).to(torch.int32))
    counts = (softmax >= 0.3).sum(dim=1)
    assert counts.max() > 1, "an ablation may vote for several classes"
    assert torch.equal(small(kept, theta=0).scores(images), (softmax * 1024).round().to(torch.int32))


@KEPT
def test_a_patch_reaches_just_the_ablations_that_keep_a_pixel_of_it(kept: tuple[int, int]) -> None:
    """A NaN shows in every logit that sees it."""
    scorer, seen = small(kept), kept_pixels(kept)
    threat = parse_threat("2x3", SIZE)
    regions = scorer.footprint.regions(threat)
    for index, mask in enumerate(regions.masks()):
        row, column, height, width = regions.placement(index)
        pixels = {(row + down, column + right) for down in range(height) for right in range(width)}
        expected = torch.tensor([[bool(pixels & entry) for entry in line] for line in seen])
        assert torch.equal(mask, expected)
        images = some_images(1)
        images[:, :, row : row + height, column : column + width] = torch.nan
        assert torch.equal(scorer.logits(images).isnan().any(dim=1)[0], expected)


def test_columns_pay_for_a_wide_patch_and_not_for_a_high_one() -> None:
    """A 1x24 patch meets 27 of 32 columns of 4 pixels: after it no lead of votes is left to prove anything."""
    footprint = AblationConfig(kept=(32, 4), width=1, blocks=(1,)).build((32, 32), (0.0,), (1.0,)).footprint
    unanimous = torch.zeros(1, 10, 1, 32, dtype=torch.int32)
    unanimous[:, 3] = 1
    reached = {patch: int(footprint.regions(parse_threat(patch, (32, 32))).sizes.max()) for patch in ("1x24", "24x1")}
    assert reached == {"1x24": 27, "24x1": 4}
    for rule in ("largest-region", "every-region", "two-mask"):
        leads = []
        for patch in ("1x24", "24x1"):
            certificate = bagcert.certify_scores(unanimous, patch, rule=rule, footprint=footprint)
            assert certificate.lead is not None
            leads.append(int(certificate.lead))
        assert leads == {"largest-region": [-22, 24], "every-region": [-22, 24], "two-mask": [0, 24]}[rule]


@KEPT
def test_pieces_and_gradients_change_nothing(kept: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, images = small(kept), some_images()
    whole = scorer(images.requires_grad_())
    (slope,) = torch.autograd.grad(whole[:, 0].sum(), images)
    assert torch.equal(whole.detach().to(torch.int32), scorer.scores(images))
    monkeypatch.setitem(ablation.ABLATED_AT_ONCE, "cpu", 7)  # two ablations of three images
    parts = scorer(images)
    torch.testing.assert_close(parts, whole)
    torch.testing.assert_close(torch.autograd.grad(parts[:, 0].sum(), images)[0], slope)
    assert slope.abs().sum() > 0


@KEPT
def test_training_shows_one_ablation_to_the_whole_batch(kept: tuple[int, int]) -> None:
    scorer, images = small(kept), some_images()
    every = scorer.logits(images).flatten(2)  # b k n
    scorer.training = True  # its classifier stays in evaluation mode: batch norm would hide which ablation it was
    drawn = set()
    for seed in range(40):
        torch.manual_seed(seed)
        one = scorer(images)
        assert one.shape == (3, 3, 1, 1)
        (match,) = torch.isclose(one[..., 0], every, atol=1e-5).all(dim=1).all(dim=0).nonzero().flatten().tolist()
        drawn.add(match)
    assert len(drawn) > 5 or len(drawn) == every.shape[2]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"kept": (7, 2)}, r"An ablation must keep 1 to 6 pixels, but this one keeps 7\. Choose another number\."),
        ({"theta": 1.5}, r"The value of network.theta must lie in 0\.\.1, but is 1.5"),
        ({"width": 0}, "The network must have at least 2 classes, 1 channel and width 1, but has fewer"),
        ({"blocks": (1, 0)}, r"The value of network.blocks must be at least 1 for each stage, but is \[1, 0\]"),
    ],
)
def test_impossible_ablations_are_refused(config: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AblationConfig(**config).build(SIZE, (0.0,), (1.0,))  # type: ignore[arg-type]


@KEPT
def test_largest_region_is_the_published_certificate_but_for_ties(kept: tuple[int, int]) -> None:
    """Levine & Feizi: n1 - n2 > 2Δ, or equal and c1 before c2, with Δ from the sides of patch and ablation."""
    scorer = small(kept)
    rows, columns = scorer.footprint.grid
    generator = torch.Generator().manual_seed(3)
    share = torch.rand(400, 3, 1, 1, generator=generator)
    votes = (torch.rand(400, 3, rows, columns, generator=generator) < share).to(torch.int32)
    ties = 0
    for height, width in ((1, 1), (1, 2), (2, 1), (2, 2)):
        sides = (height + kept[0] - 1 if rows > 1 else 1, width + kept[1] - 1 if columns > 1 else 1)
        reached = min(sides[0], rows) * min(sides[1], columns)
        certificate = bagcert.certify_scores(
            votes, f"{height}x{width}", rule="largest-region", footprint=scorer.footprint
        )
        for image, counts in enumerate(votes.sum(dim=(2, 3)).tolist()):
            first, second = sorted(range(3), key=lambda label: (-counts[label], label))[:2]
            lead = counts[first] - counts[second] - 2 * reached
            assert int(certificate.predicted[image]) == first
            assert bool(certificate.certified[image]) == (lead > 0)
            ties += lead == 0 and first < second
    assert ties > 0, "or the difference would not show"


class Wild(torch.nn.Module):
    """A classifier of any shape: smooth noise on what little it is shown."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weights = torch.nn.ParameterList(
            [torch.randn(10, 12, generator=generator) * 0.9, torch.randn(12, 2, generator=generator) * 2]
        )

    def forward(self, images: Tensor) -> Tensor:
        first, second = self.weights
        logits: Tensor = (images.flatten(1) @ first).sin() @ second
        return logits


@pytest.mark.parametrize("theta", [0.6, 0.0], ids=["votes", "softmax"])
@pytest.mark.parametrize("rule", ["largest-region", "every-region", "masked", "two-mask"])
def test_no_attack_of_a_whole_small_world_changes_what_is_certified(rule: str, theta: float) -> None:
    """Every image of five pixels and three levels, every place, every level: attacked images are of this world too."""
    levels = torch.tensor([0.0, 0.5, 1.0])
    world = levels[torch.cartesian_prod(*[torch.arange(3)] * 5)].view(-1, 1, 1, 5)
    config = AblationConfig(classes=2, channels=1, kept=(1, 1), theta=theta, width=1, blocks=(1,))
    certified = flipped = 0
    for seed in range(6):
        scorer = AblationScorer(config, (1, 5))
        scorer.classifier = Wild(seed)  # type: ignore[assignment]
        scorer.eval()
        certificate = bagcert.certify_scores(
            scorer.scores(world), "1x1", rule=rule, bounds=scorer.step.bounds, footprint=scorer.footprint
        )
        changes = torch.zeros(len(world), dtype=torch.bool)
        for place in (81, 27, 9, 3, 1):
            for level in range(3):
                number = torch.arange(len(world))
                changes |= (
                    certificate.predicted[number + (level - number // place % 3) * place] != certificate.predicted
                )
        assert not bool((changes & certificate.certified).any())
        certified, flipped = certified + int(certificate.certified.sum()), flipped + int(changes.sum())
    assert certified > 20 and flipped > 20


@pytest.mark.parametrize("width", [5, 8, 33])
def test_the_place_in_a_batch_changes_no_logit(width: int) -> None:
    """The last rows of a product of matrices may be rounded in another way than the others."""
    torch.manual_seed(0)
    scorer = AblationConfig(classes=3, kept=(5, 4), width=width, blocks=(1,)).build((5, 5), (0.0,), (1.0,)).eval()
    with torch.no_grad():
        logits = scorer.logits(torch.rand(1, 3, 5, 5).repeat(16, 1, 1, 1))
    assert torch.equal(logits, logits[:1].expand_as(logits))
