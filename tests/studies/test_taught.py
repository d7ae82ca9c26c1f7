"""Students learn from labels and from teachers that have not seen the image."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from bagcert.data import ArrayDataset, Arrays, ArraySource, load_dataset
from bagcert.data.base import training_positions
from bagcert.errors import UsageError
from bagcert.scorers.weights import load_scorer
from bagcert.training.losses import TwoMaskLoss
from studies.taught import students, teachers
from studies.taught.command import KERNELS, network, taught
from studies.taught.students import MASKED, SMOOTHING, TAUGHT, Part, taught_loss
from studies.taught.teachers import FOLDS, Size, Teacher, folds, teach
from tests.data.tiny_cifar10 import TinyCifar10
from tests.studies.calling import call

CPU = torch.device("cpu")


def small_dataset() -> ArrayDataset:
    """Forty images of two classes; the first pixel of an image is its number."""
    pixels = torch.zeros(40, 1, 8, 8, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.arange(40)
    arrays = Arrays(pixels, torch.arange(40) % 2)
    return ArrayDataset("small", ("a", "b"), ((0.5,), (0.25,)), arrays, arrays, "digest")


def test_a_teacher_sees_neither_its_fold_nor_validation_images(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, seen = small_dataset(), []

    def watched(self: Teacher, images: Tensor) -> Tensor:
        if self.training:
            seen.append((255 * images[:, 0]).round().long().flatten(1).amax(dim=1))
        return original(self, images)

    original = Teacher.forward
    monkeypatch.setattr(Teacher, "forward", watched)
    monkeypatch.setattr(teachers, "Augmentation", lambda: None)  # the numbers stay where they are
    own = folds(dataset.train.labels)
    assert set(training_positions("validation", dataset.train.labels).tolist()) == set(
        (own < 0).nonzero()[:, 0].tolist()
    )
    for fold in range(FOLDS):
        seen.clear()
        teachers.train_teacher(dataset, fold, Size((2, 2, 2, 2), epochs=1, batch=9), CPU)
        numbers = torch.cat(seen)
        assert set(own[numbers].tolist()) == set(range(FOLDS)) - {fold}


def test_an_image_is_taught_by_the_teacher_that_has_not_seen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = small_dataset()
    monkeypatch.setattr(teachers, "train_teacher", lambda _, fold, *__: fold)
    monkeypatch.setattr(teachers, "probabilities", lambda fold, images, _: torch.full((len(images), 2), float(fold)))
    said, of_others = teach(dataset, dataset.train.images[:3], Size(), CPU)
    own = folds(dataset.train.labels)
    mean = sum(range(FOLDS)) / FOLDS
    assert said[:, 0].tolist() == [float(fold) if fold >= 0 else mean for fold in own.tolist()]
    assert of_others.tolist() == [[mean, mean]] * 3


def test_without_teachers_the_loss_is_that_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    scores, labels = torch.randn(6, 3, 12, 12), torch.tensor([0, 1, 2, 0, 1, 2])
    source = ArraySource(Arrays(torch.zeros(6, 1, 12, 12, dtype=torch.uint8), labels))
    monkeypatch.setattr(students, "TAUGHT", 0.0)
    targets = Part.of(source, torch.rand(6, 3), 6).targets
    expected = TwoMaskLoss(window=(5, 4), smoothing=SMOOTHING, weight=MASKED)(scores, labels)
    assert torch.allclose(taught_loss(scores, labels, targets, (5, 4)), expected)


def test_targets_are_labels_and_what_teachers_say() -> None:
    source = ArraySource(Arrays(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.tensor([1])))
    targets = Part.of(source, torch.tensor([[0.8, 0.2]]), 1).targets
    label = torch.tensor([[SMOOTHING / 2, 1 - SMOOTHING / 2]])
    assert torch.allclose(targets, (1 - TAUGHT) * label + TAUGHT * torch.tensor([[0.8, 0.2]]))


def test_a_source_must_fill_its_part_of_a_batch() -> None:
    source = ArraySource(Arrays(torch.zeros(1, 1, 8, 8, dtype=torch.uint8), torch.tensor([1])))
    with pytest.raises(UsageError, match="takes 2 images of a source that has 1"):
        Part.of(source, torch.tensor([[0.8, 0.2]]), 2)


@pytest.mark.parametrize("field", KERNELS)
def test_a_network_has_its_receptive_field(field: int) -> None:
    scorer = network(field, 2, 3).build((32, 32), mean=(0.0,), std=(1.0,))
    middle = scorer.footprint.branches[0].rows[16]
    assert int(middle.sum()) == field and scorer.config.block_widths[-6:] == (3,) * 6


def test_runs_are_trained_and_loaded(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path / "data")
    names = load_dataset("cifar10", tmp_path / "data").classes
    for number, name in enumerate(names):
        (tmp_path / "generated" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / "generated" / name / "one.png")
    options = ["--tiny", "--steps", "2", "--narrow", "2", "--wide", "3", "--data-dir", str(tmp_path / "data")]
    images = ["--generated", str(tmp_path / "generated")]
    assert call(monkeypatch, taught, str(tmp_path / "runs"), *options, *images) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[:FOLDS] == [f"teacher {number} of {FOLDS}" for number in range(1, FOLDS + 1)]
    assert [line.split("  ")[0] for line in told[FOLDS:]] == ["step 1/2", "step 2/2"] * 2
    for field in (7, 5):
        scorer, card = load_scorer(tmp_path / "runs" / f"field-{field}")
        assert card["generated_images"] == 10 and not card["final"]
        assert scorer.scores(torch.rand(1, 3, 32, 32)).shape[1] == 10
    assert json.loads((tmp_path / "runs/field-5/config.json").read_text())["steps"] == 2
    assert call(monkeypatch, taught, str(tmp_path / "runs"), *options, "--field", "9") == 2
    assert "is about other images" in capsys.readouterr().err
