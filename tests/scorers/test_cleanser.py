"""PatchCleanser against its paper's own words, on every image of a tiny world."""

from itertools import product

import pytest
import torch
from torch import Tensor, nn

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers import cleanser
from bagcert.scorers.cleanser import CleanserConfig, CleanserScorer

SIZE = (2, 3)
LEVELS = (0.0, 0.4, 1.0)
NAMES = ("a", "b", "c")
WORLD = torch.tensor(list(product(LEVELS, repeat=6))).view(-1, 1, *SIZE)  # all 729 images


class Wild(nn.Module):
    """A classifier of any shape: smooth noise, so that masks often change its mind."""

    def __init__(self, seed: int, roughness: float) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.register_parameter("first", nn.Parameter(torch.randn(6, 20, generator=generator) * roughness))
        self.register_parameter("second", nn.Parameter(torch.randn(20, 3, generator=generator)))

    def forward(self, images: Tensor) -> Tensor:
        first, second = self.parameters()
        return (images.flatten(1) @ first).sin() @ second


def wild(seed: int, roughness: float = 0.35, masks: int = 2) -> Defense:
    scorer = CleanserScorer(CleanserConfig(3, 1, (1, 1), masks, width=1, blocks=(1,)), SIZE, (0.4,), (0.3,))
    scorer.classifier = Wild(seed, roughness)  # type: ignore[assignment]
    return Defense.build(scorer.eval(), "unanimous", "1x1", NAMES, batch_size=729)


def papers_answer(scorer: CleanserScorer, image: Tensor) -> tuple[int, bool]:
    """The inference of section 2 of PatchCleanser, mask by mask, and whether all pairs of masks agree with it."""
    masks = scorer.hidden.masks(torch.arange(len(scorer.hidden)))

    def ask(one: Tensor, two: Tensor) -> int:
        shown = torch.where(one | two, 0.4, image)
        return int(scorer.classifier((shown - 0.4)[None] / 0.3).argmax())

    singles = [ask(mask, mask) for mask in masks]
    pairs = {ask(one, two) for one in masks for two in masks}
    majority = max(range(3), key=lambda label: (singles.count(label), -label))
    answer = majority
    if len(set(singles)) > 1:
        for mask, label in zip(masks, singles, strict=True):
            if label != majority and all(ask(mask, other) == label for other in masks):
                answer = label
                break
    return answer, pairs == {answer}


@pytest.mark.parametrize("seed", range(3))
def test_the_answers_and_proofs_of_the_paper(seed: int) -> None:
    defense = wild(seed)
    assert isinstance(defense.scorer, CleanserScorer)
    certificate = defense.certify(WORLD)
    theirs = [papers_answer(defense.scorer, image) for image in WORLD[::7]]
    assert certificate.predicted[::7].tolist() == [answer for answer, _ in theirs]
    assert all(ours for ours, (_, proven) in zip(certificate.certified[::7].tolist(), theirs, strict=True) if proven)
    assert any(proven for _, proven in theirs) and len(set(certificate.predicted.tolist())) > 1


@pytest.mark.parametrize("masks", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_no_attack_of_the_whole_world_changes_what_is_certified(seed: int, masks: int) -> None:
    """Every image, every pixel, every level: attacked images are images of the world too."""
    certificate = wild(seed, masks=masks).certify(WORLD)
    flips = torch.zeros(len(WORLD), dtype=torch.bool)
    number = torch.arange(len(WORLD))
    for pixel in range(6):
        place = 3 ** (5 - pixel)
        for level in range(3):
            other = number + (level - number // place % 3) * place
            assert torch.equal(WORLD[other].flatten(1)[:, pixel], torch.full((729,), LEVELS[level]))
            flips |= certificate.predicted[other] != certificate.predicted
    assert not bool((flips & certificate.certified).any())
    assert 20 < int(certificate.certified.sum()) < 709 and bool(flips.any())


def test_hidden_pixels_vanish() -> None:
    """Bit for bit, and NaN as well: nothing of the attacker's pixels is left to compute with."""
    scorer = wild(0).scorer
    assert isinstance(scorer, CleanserScorer)
    images = WORLD[:50]
    regions = scorer.footprint.regions(wild(0).threat)
    for index, reached in enumerate(regions.masks()):
        row, column, _, _ = regions.placement(index)
        painted = images.clone()
        painted[:, :, row, column] = torch.nan
        assert torch.equal(scorer.scores(painted)[:, :, ~reached], scorer.scores(images)[:, :, ~reached])


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = wild(1).scorer
    whole = scorer.scores(WORLD)
    monkeypatch.setitem(cleanser.MASKED_AT_ONCE, "cpu", 5)
    assert torch.equal(scorer.scores(WORLD), whole)


def test_training_hides_two_random_masks() -> None:
    scorer = wild(2).scorer
    assert isinstance(scorer, CleanserScorer)
    masks = scorer.hidden.masks(torch.arange(len(scorer.hidden)))
    pairs = torch.stack([one | two for one in masks for two in masks])
    image = WORLD[123:124]
    expected = scorer.classify(image.expand(len(pairs), -1, -1, -1), pairs)
    scorer.train()
    found = scorer(image.expand(60, -1, -1, -1))
    assert found.shape == (60, 3, 1, 1)
    matches = torch.isclose(found[:, None, :, 0, 0], expected).all(dim=2)
    assert bool(matches.any(dim=1).all()) and int(matches.any(dim=0).sum()) > 6


def test_impossible_masks_are_refused() -> None:
    with pytest.raises(UsageError, match=r"Patch and masks of the network must be at least 1, but are \(5, 5\) and 0"):
        CleanserConfig(masks=0)
