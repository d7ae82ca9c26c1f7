"""Fashion-MNIST from its four IDX files, plain or gzipped. The SHA-256 of each one's plain content is checked."""

import gzip
import hashlib
import math
import zlib
from pathlib import Path

import numpy as np
import torch

from bagcert.data.arrays import ArrayDataset, Arrays
from bagcert.data.base import data_folder
from bagcert.errors import UsageError

CLASSES = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
STATISTICS = ((0.286041,), (0.353024,))  # of the 60,000 training images
FOLDER = "fashion-mnist"
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")  # of the package dataset-fashion-mnist
SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
UBYTE_MAGIC = 0x08  # the third byte of an IDX file: unsigned bytes


def locate(data_dir: Path) -> Path:
    """The first folder that holds any of the four files."""
    folders = (data_dir / FOLDER, data_dir, DEBIAN_FOLDER)
    for folder in folders:
        if any((folder / f"{name}{end}").exists() for name in SHA256 for end in ("", ".gz")):
            return folder
    remedy = f"Install the Debian package dataset-fashion-mnist, or put its four IDX files into {folders[0]}."
    raise UsageError(f"Fashion-MNIST is in none of these folders: {', '.join(map(str, folders))}. {remedy}")


def read_content(folder: Path, name: str) -> tuple[Path, bytes]:
    """The plain content of one file, and the path it was read from."""
    plain, packed = folder / name, folder / f"{name}.gz"
    path = plain if plain.exists() else packed
    try:
        return path, plain.read_bytes() if path == plain else gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"Cannot read {path}: {error}. Get a fresh copy.") from None


def parse_idx(path: Path, content: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """IDX: two zero bytes, the type, the number of dimensions, their sizes as big-endian 32-bit integers, the data."""
    if len(content) < 4 or content[:3] != bytes([0, 0, UBYTE_MAGIC]):
        raise UsageError(
            f"{path} is not an IDX file of unsigned bytes: it starts with '{content[:4].hex()}'. Get a fresh copy."
        )
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise UsageError(f"{path} has {len(content)} bytes, but its header has {start}. Get a fresh copy.")
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(content) != start + math.prod(shape):
        size, got = "x".join(map(str, shape)), len(content) - start
        raise UsageError(f"{path} has {got} bytes after its header instead of {size}. Get a fresh copy.")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def read_array(folder: Path, name: str) -> torch.Tensor:
    path, content = read_content(folder, name)
    array = parse_idx(path, content)
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256[name]:  # for example MNIST: its files have the same names and sizes
        raise UsageError(
            f"{path} is not Fashion-MNIST: its SHA-256 is {found} instead of {SHA256[name]}. Get a fresh copy."
        )
    return torch.from_numpy(array.copy())


def load_fashion_mnist(data_dir: Path | None = None) -> ArrayDataset:
    """60,000 training and 10,000 test images, 1x28x28. The digest is a hash of the four files' SHA-256s."""
    folder = locate(data_folder(data_dir))
    train_images, train_labels, test_images, test_labels = (read_array(folder, name) for name in SHA256)
    train = Arrays(train_images[:, None], train_labels.long())
    test = Arrays(test_images[:, None], test_labels.long())
    digest = hashlib.sha256("".join(SHA256.values()).encode()).hexdigest()
    return ArrayDataset("fashion-mnist", CLASSES, STATISTICS, train, test, digest)
