"""CIFAR-10 from its official binary batches. Each load checks their official MD5s (0.4 s in total)."""

import hashlib
from pathlib import Path

import numpy as np
import torch

from bagcert.data.arrays import ArrayDataset, Arrays
from bagcert.data.base import data_folder
from bagcert.errors import UsageError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
STATISTICS = ((0.4914, 0.482158, 0.446531), (0.247032, 0.243485, 0.261588))  # of the 50,000 training images
FOLDER = "cifar-10-batches-bin"  # the folder inside the official tarball
RECORD = 1 + 3 * 32 * 32  # label byte; red, green, blue planes
BATCH_BYTES = 10_000 * RECORD
MD5 = {
    "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
}
REMEDY = "Run `bagcert data cifar10`"


def batch_folder(data_dir: Path) -> Path:
    """The folder of the batches: `data_dir` if it holds any of them, else the tarball's folder inside it."""
    if any((data_dir / name).exists() for name in MD5):
        return data_dir
    return data_dir / FOLDER


def fault(name: str, content: bytes) -> str | None:
    """How the content of a batch differs from the official one, to follow the file's name; None if it does not."""
    if len(content) != BATCH_BYTES:
        return f"has {len(content)} bytes instead of {BATCH_BYTES}"
    found = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return None if found == MD5[name] else f"has the MD5 {found} instead of {MD5[name]}"


def read_batch(path: Path) -> bytes:
    """The official bytes of one batch file."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UsageError(f"CIFAR-10 is not in {path.parent}: {path.name} is missing. {REMEDY}.") from None
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}. {REMEDY}.") from None
    if wrong := fault(path.name, content):
        raise UsageError(f"{path} {wrong}. {REMEDY} to replace it.")
    return content


def to_arrays(content: bytes) -> Arrays:
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    images = torch.from_numpy(records[:, 1:].reshape(-1, 3, 32, 32).copy())
    return Arrays(images, torch.from_numpy(records[:, 0].astype(np.int64)))


def load_cifar10(data_dir: Path | None = None) -> ArrayDataset:
    """50,000 training and 10,000 test images, 3x32x32. The digest is a hash of the official MD5s."""
    folder = batch_folder(data_folder(data_dir))
    *train, test = (read_batch(folder / name) for name in MD5)
    digest = hashlib.sha256("".join(MD5.values()).encode()).hexdigest()
    return ArrayDataset("cifar10", CLASSES, STATISTICS, to_arrays(b"".join(train)), to_arrays(test), digest)
