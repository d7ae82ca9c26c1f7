from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.data import FolderDataset, FolderSettings, load_dataset
from bagcert.errors import UsageError
from bagcert.pictures import Framing

SMALL = FolderSettings(Framing((8, 8), resize=0), workers=0)
SKIPPING = FolderSettings(Framing((8, 8), resize=0), workers=0, skip_broken=True)


def add_images(folder: Path, count: int, size: int = 8) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.fromarray(np.full((size, size, 3), number, np.uint8)).save(folder / f"{number:03}.png")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """ImageNet's layout: 20 training and 3 test images of each of two classes."""
    for name in ("cat", "dog"):
        add_images(tmp_path / "train" / name, 20)
        add_images(tmp_path / "val" / name, 3)
    return tmp_path


def test_facts_and_splits(root: Path) -> None:
    dataset = load_dataset(str(root), folder=SMALL)
    assert (dataset.classes, dataset.channels, dataset.image_size) == (("cat", "dog"), 3, (8, 8))
    labels = {name: dataset.split(name).labels.tolist() for name in ("train", "validation", "train+validation", "test")}
    assert sorted(labels["train"]) == [0] * 18 + [1] * 18
    assert sorted(labels["validation"]) == [0] * 2 + [1] * 2
    assert labels["train+validation"] == [0, 1] * 20
    assert labels["test"] == [0, 1] * 3


def test_the_first_images_are_of_all_classes(tmp_path: Path) -> None:
    """Who certifies or attacks a few images only must not meet the first classes of the alphabet alone."""
    for name, count in (("ant", 1), ("bee", 4), ("cat", 2)):
        add_images(tmp_path / name, count)
    test = FolderDataset(tmp_path, SMALL).split("test")
    (batch,) = test.batches(7, "cpu")
    numbers = (batch.images[:, 0, 0, 0] * 255).round().int().tolist()
    assert list(zip(batch.labels.tolist(), numbers, strict=True)) == [
        *((0, 0), (1, 0), (2, 0)),
        *((1, 1), (2, 1)),
        *((1, 2), (1, 3)),
    ]


def test_default_framing_is_that_of_imagenet(root: Path) -> None:
    dataset = load_dataset(str(root))
    assert dataset.image_size == (224, 224)
    (batch,) = dataset.split("test").batches(6, "cpu")
    assert batch.images.shape == (6, 3, 224, 224)


def test_resident_images_are_those_of_the_files(root: Path) -> None:
    streamed, resident = FolderDataset(root, SMALL), FolderDataset(root, replace(SMALL, resident=True))
    assert streamed.digest == resident.digest
    for name in ("train", "validation", "train+validation", "test"):
        for theirs, ours in zip(
            streamed.split(name).batches(7, "cpu", epoch_seed=3),
            resident.split(name).batches(7, "cpu", epoch_seed=3),
            strict=True,
        ):
            assert torch.equal(theirs.images, ours.images)
            assert torch.equal(theirs.labels, ours.labels)


def test_too_many_pixels_to_be_resident_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.data.folder.MOST_RESIDENT", 40 * 8 * 8 * 3)
    resident = FolderDataset(root, replace(SMALL, resident=True))
    assert len(resident.split("train+validation")) == 40
    monkeypatch.setattr("bagcert.data.folder.MOST_RESIDENT", 40 * 8 * 8 * 3 - 1)
    with pytest.raises(
        UsageError, match=r"train has .* GiB of pixels, but at most .* GiB .*\. Set data\.resident=false to stream them"
    ):
        FolderDataset(root, replace(SMALL, resident=True)).split("train")


def test_a_folder_is_also_looked_for_among_the_data_sets(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_dataset(root.name, root.parent, SMALL).classes == ("cat", "dog")
    monkeypatch.setenv("BAGCERT_DATA", str(root.parent))
    assert load_dataset(root.name, folder=SMALL).digest == FolderDataset(root, SMALL).digest


def test_train_and_validation_share_no_file(root: Path) -> None:
    dataset = FolderDataset(root, SMALL)
    seen = [
        (label, round(image[0, 0, 0].item() * 255))
        for name in ("train", "validation")
        for batch in dataset.split(name).batches(10, "cpu")
        for label, image in zip(batch.labels.tolist(), batch.images, strict=True)
    ]
    assert sorted(seen) == [(label, number) for label in (0, 1) for number in range(20)]


def test_class_folders_alone_are_a_test_set(root: Path) -> None:
    dataset = FolderDataset(root / "val", SMALL)
    assert len(dataset.split("test")) == 6
    with pytest.raises(UsageError, match=r"val has no folder 'train', which the split 'validation' needs\. Lay"):
        dataset.split("validation")


def test_digest_follows_names_sizes_and_framing(root: Path) -> None:
    digest = FolderDataset(root, SMALL).digest
    assert FolderDataset(root, SMALL).digest == digest
    assert FolderDataset(root, FolderSettings(Framing((4, 4), 0), workers=0)).digest != digest
    (root / "val" / "cat" / "000.png").rename(root / "val" / "cat" / "0000.png")
    assert FolderDataset(root, SMALL).digest != digest


def test_digest_does_not_depend_on_where_the_folder_lies(root: Path, tmp_path: Path) -> None:
    digest = FolderDataset(root / "val", SMALL).digest
    (root / "val").rename(root / "elsewhere")
    assert FolderDataset(root / "elsewhere", SMALL).digest == digest


def test_an_empty_class_is_named(root: Path) -> None:
    (root / "train" / "cow").mkdir()
    (root / "val" / "cow").mkdir()
    (root / "train" / "cow" / "notes.txt").write_text("no image")
    with pytest.raises(UsageError, match=r"train/cow holds no images \(.jpg .*\)\. Add some, or remove"):
        FolderDataset(root, SMALL)


def test_different_classes_in_train_and_val_are_named(root: Path) -> None:
    (root / "val" / "dog").rename(root / "val" / "dogs")
    with pytest.raises(UsageError, match="val must have the 2 classes of train, but differs in 'dog'"):
        FolderDataset(root, SMALL)


def test_a_folder_without_classes_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has no sub-folders\. Sort the images into one sub-folder per class"):
        FolderDataset(tmp_path, SMALL)


def test_neither_folder_nor_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Unknown data set or folder 'cifar'\. .*Known: cifar10, "):
        load_dataset("cifar")


def test_a_broken_image_stops_the_batch_by_its_name(root: Path) -> None:
    (root / "val" / "dog" / "001.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"Cannot read the image .*val/dog/001\.png: "):
        list(FolderDataset(root, SMALL).split("test").batches(2, "cpu"))


@pytest.mark.parametrize("workers", [0, 2])
def test_skip_broken_counts_and_lists(root: Path, workers: int) -> None:
    broken, small = root / "val" / "dog" / "001.png", root / "train" / "cat" / "007.png"
    broken.write_bytes(b"no image")
    Image.new("RGB", (4, 4)).save(small)
    dataset = FolderDataset(root, FolderSettings(Framing((8, 8), 0), workers=workers, skip_broken=True))
    assert set(dataset.broken) == {broken, small}
    assert "has 4x4 pixels, fewer than the crop of 8x8" in dataset.broken[small]
    assert dataset.split("test").labels.tolist() == [0, 1, 0, 0, 1]
    assert len(dataset.split("train+validation")) == 39
    assert dataset.digest != FolderDataset(root, SMALL).digest


def test_a_class_of_broken_images_only_is_named(root: Path) -> None:
    for path in (root / "val" / "dog").iterdir():
        path.write_bytes(b"no image")
    with pytest.raises(UsageError, match=r"No image of class 'dog' can be used\. About the first one: .*000\.png"):
        FolderDataset(root, SKIPPING)
