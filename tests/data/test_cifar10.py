import hashlib
from pathlib import Path

import pytest
import torch

from bagcert.data import load_dataset
from bagcert.data.arrays import ArrayDataset
from bagcert.data.base import training_positions
from bagcert.data.cifar10 import load_cifar10
from bagcert.errors import UsageError
from tests.data.tiny_cifar10 import TINY_RECORDS, TinyCifar10


@pytest.fixture(scope="module")
def real(cifar10_dir: Path) -> ArrayDataset:
    return load_cifar10(cifar10_dir)


@pytest.fixture
def folder(tiny_cifar10: TinyCifar10, tmp_path: Path) -> Path:
    for name, content in tiny_cifar10.batches.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.slow
def test_real_pixels_have_the_known_digests(real: ArrayDataset) -> None:
    found = [hashlib.sha256(part.images.permute(0, 2, 3, 1).numpy().tobytes()) for part in (real.train, real.test)]
    assert [digest.hexdigest() for digest in found] == [
        "47af8b02cfcfb6cdf3dbbd1969ad7f1b70f4413f6f80f437b020ee4e5bc8304a",
        "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04",
    ]
    assert real.train.labels[:10].tolist() == [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]
    assert real.test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]


def test_real_statistics_are_those_of_the_training_images(real: ArrayDataset) -> None:
    levels = torch.arange(256, dtype=torch.float64) / 255
    for channel in range(3):
        share = real.train.images[:, channel].flatten().bincount(minlength=256).double() / (50_000 * 1024)
        mean = float((share * levels).sum())
        assert real.mean[channel] == pytest.approx(mean, abs=1e-6)
        assert real.std[channel] == pytest.approx(float((share * (levels - mean) ** 2).sum().sqrt()), abs=1e-6)


def test_real_splits_are_balanced(real: ArrayDataset) -> None:
    sizes = {"train": 4500, "validation": 500, "train+validation": 5000, "test": 1000}
    for name, size in sizes.items():
        assert real.split(name).labels.bincount().tolist() == [size] * 10


def test_real_validation_images_are_pinned(real: ArrayDataset) -> None:
    positions = training_positions("validation", real.train.labels)
    assert positions[:5].tolist() == [5, 12, 21, 32, 42]
    assert (
        hashlib.sha256(positions.numpy().astype("<i8").tobytes()).hexdigest()
        == "7f486cdbaff0558abb207fde9f263340f34dbbbe0bd246be8a7b358198ff93a7"
    )


def test_facts_and_layout(folder: Path, tiny_cifar10: TinyCifar10) -> None:
    dataset = load_dataset("cifar10", folder)
    assert (dataset.name, dataset.channels, dataset.image_size) == ("cifar10", 3, (32, 32))
    assert dataset.classes[3] == "cat"
    (batch,) = dataset.split("test").batches(100, "cpu")
    record = tiny_cifar10.batches["test_batch.bin"][3073:6146]
    assert batch.labels[1] == record[0]
    assert batch.images[1, 0, 0, 1].item() * 255 == pytest.approx(record[2])  # red plane first, then along the row
    assert batch.images[1, 2, 31, 31].item() * 255 == pytest.approx(record[-1])


def test_the_folder_of_the_tarball_is_found_too(folder: Path) -> None:
    (folder / "cifar-10-batches-bin").mkdir()
    for path in folder.glob("*.bin"):
        path.rename(folder / "cifar-10-batches-bin" / path.name)
    assert len(load_cifar10(folder).split("test")) == TINY_RECORDS


def test_bagcert_data_is_the_default_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAGCERT_DATA", str(folder))
    assert len(load_dataset("cifar10").split("train+validation")) == 5 * TINY_RECORDS


def test_one_changed_bit_is_an_error_that_names_the_file(folder: Path) -> None:
    path = folder / "data_batch_3.bin"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"data_batch_3\.bin has the MD5 \w+ instead of \w+\. Run `bagcert data cif"):
        load_cifar10(folder)


def test_a_truncated_file_is_an_error_that_names_it(folder: Path) -> None:
    path = folder / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"test_batch\.bin has 61459 bytes instead of 61460\. Run"):
        load_cifar10(folder)


def test_a_missing_file_is_an_error_with_the_remedy(folder: Path) -> None:
    (folder / "data_batch_5.bin").unlink()
    with pytest.raises(UsageError, match=r"CIFAR-10 is not in .*: data_batch_5\.bin is missing\. Run `bagcert data"):
        load_cifar10(folder)
