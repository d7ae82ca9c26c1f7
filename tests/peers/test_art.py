"""The Adversarial Robustness Toolbox on the same weights: the same votes, the same certified set, image by image.

`make peers` runs this in an environment of its own; elsewhere it is skipped.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from bagcert.data import Batch, load_dataset
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.scorers.ablation import AblationScorer
from studies.rivals.art import COLUMNS, art_classifier, by_art, by_us, clear_of_theta, compare

pytest.importorskip("art", reason="the outside check needs the Adversarial Robustness Toolbox: make peers")

pytestmark = pytest.mark.slow

IMAGES = 200


@pytest.fixture(scope="module")
def columns() -> Defense:
    return load(COLUMNS)


@pytest.fixture(scope="module")
def batch(cifar10_dir: Path) -> Batch:
    return next(iter(load_dataset("cifar10", cifar10_dir).split("test").batches(IMAGES, "cpu")))


def looking(columns: Defense, kept: tuple[int, int], size: tuple[int, int], patch: str) -> Defense:
    """The same classifier, shown other parts of images of another size."""
    assert isinstance(columns.scorer, AblationScorer)
    scorer = replace(columns.scorer.config, kept=kept).build(size, (0.0,), (1.0,)).eval()
    scorer.load_state_dict(columns.scorer.state_dict())
    return Defense.build(scorer, "largest-region", patch, columns.classes)


@pytest.mark.parametrize("side", [2, 5])
def test_columns_give_the_same_votes_and_certificates(columns: Defense, batch: Batch, side: int) -> None:
    found = compare(columns, batch.images, batch.labels, side)
    assert found["differing_votes"] == found["differing_predictions"] == found["differing_certificates"] == 0
    assert found["certified"] > IMAGES // 4, "or the test would say little"
    assert 0 < found["of_these_ties"] < IMAGES // 20, "its tie rule adds some"
    assert found["too_near_to_theta"] < IMAGES // 20
    assert found["seconds_art"] > 0 and found["seconds_ours"] > 0


def test_a_certificate_of_its_that_does_not_hold_is_counted(columns: Defense, cifar10_dir: Path) -> None:
    """Test image 429: test_art_bugs.py says why."""
    rest = load_dataset("cifar10", cifar10_dir).split("test").batches(1, "cpu", start=429)
    image = next(iter(rest))
    found = compare(columns, image.images, image.labels, 5)
    assert found["wrong_certificates_of_art"] == 1 and found["certified"] == found["differing_certificates"] == 0


def test_its_two_numbers_are_ours(columns: Defense, batch: Batch) -> None:
    """With its tie rule; an image more or less where a softmax is too near to θ."""
    classifier = art_classifier(columns)
    clean, certified = classifier.eval_and_certify(batch.images.numpy(), batch.labels.numpy(), 5, verbose=False)
    (ours, _), near = by_us(columns.against("5x5"), batch.images), int((~clear_of_theta(columns, batch.images)).sum())
    right = ours.predicted == batch.labels
    assert abs(float(clean) * IMAGES - int(right.sum())) <= near + 0.01
    assert abs(float(certified) * IMAGES - int((right & ours.certified).sum())) <= near + 0.01


@pytest.mark.parametrize(
    ("kept", "size", "patch"),
    [((3, 32), (32, 32), "2x2"), ((12, 2), (12, 20), "2x2"), ((8, 8), (16, 16), "1x1")],
    ids=["rows", "columns of wide images", "blocks"],
)
def test_every_kind_of_ablation_gives_the_same_votes(
    columns: Defense, batch: Batch, kept: tuple[int, int], size: tuple[int, int], patch: str
) -> None:
    defense = looking(columns, kept, size, patch)
    images, labels = batch.images[:32, :, : size[0], : size[1]].contiguous(), batch.labels[:32]
    theirs = by_art(art_classifier(defense), images, labels, int(patch[0]))
    (ours, _), clear = by_us(defense, images), clear_of_theta(defense, images)
    assert int(clear.sum()) > 24 and not any(bool((flags & clear).any()) for flags in ours.differs(theirs).values())
    assert len(set(map(tuple, ours.votes.tolist()))) > 1, "votes depend on the image"


def test_another_threshold_is_noticed(columns: Defense, batch: Batch) -> None:
    """So that equal votes mean something."""
    classifier = art_classifier(columns)
    classifier.threshold += 0.01
    images, labels = batch.images[:50], batch.labels[:50]
    theirs, (ours, _) = by_art(classifier, images, labels, 5), by_us(columns.against("5x5"), images)
    assert bool(ours.differs(theirs)["votes"].any())


def test_what_it_does_not_know_is_refused(columns: Defense) -> None:
    with pytest.raises(UsageError, match="ART knows columns, rows and square blocks, but this run keeps 3x4"):
        art_classifier(looking(columns, (3, 4), (16, 16), "1x1"))
