"""The public call: what is attacked, what comes back, and what more effort buys."""

import pytest
import torch
from torch import nn

import bagcert
from bagcert.attacks import AttackSettings, attack
from bagcert.attacks.windows import Windows
from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers.residual import ResidualScorer

pytestmark = pytest.mark.slow

NAMES = tuple("0123456789")
QUICK = AttackSettings(steps=8, step_size=0.2)


@pytest.fixture(scope="module")
def defense(votes: ResidualScorer) -> Defense:
    return Defense.build(votes, "two-mask", "2x2", NAMES)


def test_images_that_are_wrong_already_are_left_alone_unless_certified(defense: Defense, digits: Batch) -> None:
    result = defense.attack(digits.images, digits.labels, QUICK)
    wrong, certified = result.certificate.predicted != digits.labels, result.certificate.certified
    assert 0 < int(wrong.sum()) < 60
    assert torch.equal(result.attacked[wrong], result.certificate.predicted[wrong])
    assert torch.equal(result.images[wrong], digits.images[wrong])
    assert result.runs == int((~wrong | certified).sum())
    assert attack(defense, digits.images[:30], None, QUICK).runs == 30
    all_wrong = defense.attack(digits.images[:5], (result.certificate.predicted[:5] + 1) % 10, QUICK)
    assert all_wrong.runs == int(certified[:5].sum()) > 0, "a wrong answer that is certified may not change either"
    assert torch.equal(all_wrong.images, digits.images[:5]) and bool((all_wrong.placement == -1).all())


def test_an_attack_changes_one_patch_of_the_threat_and_nothing_else(defense: Defense, digits: Batch) -> None:
    result = defense.attack(digits.images, digits.labels, QUICK)
    flipped = (result.placement[:, 0] >= 0).nonzero().flatten().tolist()
    assert len(flipped) > 20
    assert float(result.images.min()) >= 0 and float(result.images.max()) <= 1
    for image in flipped:
        row, column, height, width = result.placement[image].tolist()
        assert (height, width) == (2, 2)
        changed = (result.images[image] != digits.images[image]).any(dim=0)
        changed[row : row + height, column : column + width] = False
        assert not bool(changed.any())


def test_more_places_and_restarts_and_a_sweep_find_more(votes: ResidualScorer, digits: Batch) -> None:
    defense = Defense.build(votes, "every-region", "1x1", NAMES)
    images, labels = digits.images[:60], digits.labels[:60]

    def flips(settings: AttackSettings) -> tuple[set[int], int]:
        result = defense.attack(images, labels, settings)
        found = (result.attacked != result.certificate.predicted).nonzero().flatten()
        assert not bool(result.certificate.certified[found].any())
        return set(found.tolist()), result.runs

    once, few = flips(QUICK)
    places, more = flips(AttackSettings(steps=8, step_size=0.2, places=6))
    restarts, _ = flips(AttackSettings(steps=8, step_size=0.2, places=6, restarts=3))
    sweep, most = flips(AttackSettings(steps=8, step_size=0.2, sweep=True))
    assert once < places <= restarts and places < sweep
    assert few < more < most


@pytest.mark.parametrize("rule", ["every-region", "masked", "two-mask"])
def test_the_papers_place_and_target(rule: str, votes: ResidualScorer, digits: Batch) -> None:
    defense = Defense.build(votes, rule, "2x2", NAMES)
    settings = AttackSettings(steps=8, step_size=0.2, paper_place=True, fixed_target=True)
    result = defense.attack(digits.images, digits.labels, settings)
    assert int((result.placement[:, 0] >= 0).sum()) > 20 and not bool(result.unsound.any())


def test_the_same_seed_gives_the_same_attack(defense: Defense, digits: Batch) -> None:
    def images(seed: int) -> torch.Tensor:
        settings = AttackSettings(steps=3, step_size=0.2, restarts=3, seed=seed)
        return defense.attack(digits.images, digits.labels, settings).images

    assert torch.equal(images(1), images(1))
    assert not torch.equal(images(1), images(2))


def test_only_the_rules_word_on_the_whole_image_counts(
    defense: Defense, digits: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that lie, with scores turned upside down, look like flips; no image changes its class for that."""

    def upside_down(self: Windows, scores: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
        return clean.flip(1)

    images, labels = digits.images[:20], defense.predict(digits.images[:20])
    settings = AttackSettings(steps=1, step_size=0.001)
    with monkeypatch.context() as patch:
        patch.setattr(Windows, "splice", upside_down)
        patch.setattr("torch.autograd.grad", lambda loss, pixels: (torch.zeros_like(pixels),))
        result = defense.attack(images, labels, settings)
    assert torch.equal(result.attacked, labels) and torch.equal(result.images, images)


def test_your_own_network_is_attacked_on_whole_images() -> None:
    """Brightness of 2x2 blocks: black 4x4 pixels outweigh a grey image, not a white one."""
    network = nn.Conv2d(1, 2, 2, stride=2)
    with torch.no_grad():
        network.weight[0], network.weight[1] = 1, -1
        assert network.bias is not None
        network.bias.copy_(torch.tensor([-2, 2]))
    images = torch.stack([torch.full((1, 8, 8), 0.6), torch.full((1, 8, 8), 1.0)])
    labels = torch.zeros(2, dtype=torch.int64)
    defense = Defense.build(bagcert.wrap(network.eval(), 8, channels=1), "every-region", "4x4", ("bright", "dark"))
    assert defense.attack(images, labels).attacked.tolist() == [1, 0]
    masked = defense.against("4x4", rule="two-mask").attack(images, labels)
    assert masked.certificate.certified.tolist() == [True, True] and masked.attacked.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "The number of steps must be at least 1, but is 0"),
        ({"restarts": 0}, "The number of restarts must be at least 1, but is 0"),
        ({"places": -1}, "The number of places must be at least 1, but is -1"),
        ({"step_size": 0.0}, r"The step size must be above 0 and at most 1, but is 0\. Pixels lie in"),
        ({"step_size": 2.0}, "The step size must be above 0 and at most 1, but is 2"),
    ],
)
def test_wrong_settings_are_refused(change: dict[str, float], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        AttackSettings(**change)  # type: ignore[arg-type]


def test_wrong_labels_are_refused(defense: Defense, digits: Batch) -> None:
    with pytest.raises(UsageError, match=r"Give one label for each of 120 images; these have the shape \[3\]"):
        defense.attack(digits.images, digits.labels[:3])
