"""Fashion-MNIST from IDX files, and scikit-learn's digits."""

import gzip
import hashlib
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from bagcert.data import fashion, load_dataset
from bagcert.data.base import data_folder
from bagcert.data.digits import load_digits
from bagcert.data.fashion import load_fashion_mnist, locate
from bagcert.errors import UsageError


def idx(array: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, bytes]:
    """Tiny IDX files made the official ones; Debian's folder is out of reach."""
    random = np.random.default_rng(0)
    labels = (np.arange(40, dtype=np.uint8) % 10, np.arange(20, dtype=np.uint8) % 10)
    images = [random.integers(256, size=(len(part), 28, 28), dtype=np.uint8) for part in labels]
    arrays = (images[0], labels[0], images[1], labels[1])
    content = dict(zip(fashion.SHA256, map(idx, arrays), strict=True))
    for name, plain in content.items():
        monkeypatch.setitem(fashion.SHA256, name, hashlib.sha256(plain).hexdigest())
    monkeypatch.setattr(fashion, "DEBIAN_FOLDER", tmp_path / "debian")
    return content


def write_files(folder: Path, files: dict[str, bytes], zipped: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}{'.gz' if zipped else ''}").write_bytes(gzip.compress(content) if zipped else content)


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("place", [".", "fashion-mnist", "../debian"])
def test_plain_and_zipped_files_in_every_place(
    files: dict[str, bytes], tmp_path: Path, place: str, zipped: bool
) -> None:
    write_files(tmp_path / "data" / place, files, zipped)
    dataset = load_fashion_mnist(tmp_path / "data")
    assert (dataset.channels, dataset.image_size, len(dataset.classes)) == (1, (28, 28), 10)
    (batch,) = dataset.split("test").batches(100, "cpu")
    pixels = np.frombuffer(files["t10k-images-idx3-ubyte"], np.uint8, offset=16).reshape(20, 1, 28, 28)
    assert np.array_equal((batch.images * 255).round().numpy().astype(np.uint8), pixels)
    assert batch.labels.tolist() == [label % 10 for label in range(20)]
    assert len(dataset.split("train")) == 30
    assert len(dataset.split("validation")) == 10


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content[:-7], "has 31353 bytes after its header instead of 40x28x28. Get a fresh copy"),
        (
            lambda content: content[:-1] + bytes([content[-1] ^ 1]),
            r"is not Fashion-MNIST: its SHA-256 is \w+ instead of",
        ),
        (lambda content: b"<html>", "is not an IDX file of unsigned bytes: it starts with '3c68746d'"),
        (lambda content: b"", "is not an IDX file of unsigned bytes: it starts with ''. Get"),
        (lambda content: content[:9], "has 9 bytes, but its header has 16. Get"),
    ],
)
def test_broken_idx_files_are_named(files: dict[str, bytes], tmp_path: Path, change: object, words: str) -> None:
    assert callable(change)
    files["train-images-idx3-ubyte"] = change(files["train-images-idx3-ubyte"])
    write_files(tmp_path, files, zipped=False)
    with pytest.raises(UsageError, match=f"train-images-idx3-ubyte {words}"):
        load_fashion_mnist(tmp_path)


def test_truncated_gz_and_missing_files_are_named(files: dict[str, bytes], tmp_path: Path) -> None:
    write_files(tmp_path, files, zipped=True)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UsageError, match=r"Cannot read .*t10k-images-idx3-ubyte\.gz: Compressed file"):
        load_fashion_mnist(tmp_path)
    path.unlink()
    with pytest.raises(UsageError, match=r"Cannot read .*t10k-images-idx3-ubyte\.gz: .*No such file"):
        load_fashion_mnist(tmp_path)


@pytest.mark.usefixtures("files")
def test_without_files_the_remedy_is_given(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Fashion-MNIST is in none of these folders: .*\. Install the Debian pac"):
        load_dataset("fashion-mnist", tmp_path)


def test_real_fashion_mnist_has_its_statistics() -> None:
    try:
        locate(data_folder())
    except UsageError as error:
        pytest.skip(str(error))
    dataset = load_fashion_mnist()
    pixels = dataset.train.images.double() / 255
    assert dataset.mean[0] == pytest.approx(float(pixels.mean()), abs=1e-6)
    assert dataset.std[0] == pytest.approx(float(pixels.std(correction=0)), abs=1e-6)
    assert dataset.split("validation").labels.bincount().tolist() == [600] * 10


def test_digits_are_those_of_scikit_learn() -> None:
    dataset = load_digits()
    assert (dataset.channels, dataset.image_size, dataset.classes) == (1, (8, 8), tuple("0123456789"))
    assert dataset.digest == "0b7e9c3202d7bcd255d6a19a238d3743bf5e320ba74812a6679958a017c55382"
    sizes = {name: len(dataset.split(name)) for name in ("train", "validation", "test")}
    assert sizes == {"train": 1302, "validation": 140, "test": 355}
    pixels = dataset.train.images.double() / 255
    assert dataset.mean[0] == pytest.approx(float(pixels.mean()), abs=1e-6)
    assert dataset.std[0] == pytest.approx(float(pixels.std(correction=0)), abs=1e-6)
    assert int(dataset.train.images.max()) == 255


def test_digits_test_images_are_in_no_other_split() -> None:
    dataset = load_digits()
    train, test = ({image.numpy().tobytes() for image in part.images} for part in (dataset.train, dataset.test))
    assert len(train) + len(test) == 1797  # all images differ, so the sets would shrink if one were in both
    assert not train & test


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(UsageError, match=r"The digits data set needs scikit-learn\. Run: pip install scikit-learn"):
        load_digits()
