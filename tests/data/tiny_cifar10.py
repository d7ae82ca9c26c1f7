"""A stand-in for CIFAR-10, small enough to be made for every test."""

import gzip
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image
from rich.progress import Progress

from bagcert.data import cifar10
from bagcert.data.cifar10_sources import fetch_cifar10

TINY_RECORDS = 20  # a batch; the real ones have 10,000


@dataclass(frozen=True)
class TinyCifar10:
    """Six batches in the official layout with a few random images each, and the packages that they come in."""

    batches: dict[str, bytes]

    def tarball(self) -> bytes:
        return tar_gz({f"cifar-10-batches-bin/{name}": content for name, content in self.batches.items()})

    def npm_package(self) -> bytes:
        files, labels = {}, []
        for name, content in self.batches.items():
            records = np.frombuffer(content, np.uint8).reshape(TINY_RECORDS, -1)
            labels += records[:, 0].tolist()
            rows = records[:, 1:].reshape(TINY_RECORDS, 3, 1024).transpose(0, 2, 1)
            file = io.BytesIO()
            Image.fromarray(np.ascontiguousarray(rows)).save(file, "PNG")
            files[f"package/{name.replace('.bin', '.png')}"] = file.getvalue()
        files["package/train_lables.json"] = json.dumps(labels[:-TINY_RECORDS]).encode()
        files["package/test_lables.json"] = json.dumps(labels[-TINY_RECORDS:]).encode()
        return tar_gz(files)

    def write(self, data_dir: Path) -> None:
        """Put the batches where a data folder has them."""
        folder = data_dir / "cifar-10-batches-bin"
        folder.mkdir(parents=True)
        for name, content in self.batches.items():
            (folder / name).write_bytes(content)

    def is_in(self, folder: Path) -> bool:
        """Whether exactly the six right files lie in the folder, and nothing half done."""
        return {path.name: path.read_bytes() for path in folder.iterdir()} == self.batches


def tar_gz(files: dict[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with gzip.GzipFile(fileobj=archive, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return archive.getvalue()


def make_tiny_cifar10() -> TinyCifar10:
    random = np.random.default_rng(0)
    batches = {}
    for name in cifar10.MD5:
        records = random.integers(256, size=(TINY_RECORDS, cifar10.RECORD), dtype=np.uint8)
        records[:, 0] = np.arange(TINY_RECORDS) % 10
        batches[name] = records.tobytes()
    return TinyCifar10(batches)


def fetch(data_dir: Path) -> Path:
    return fetch_cifar10(data_dir, Progress(disable=True))


def leftovers(data_dir: Path) -> set[str]:
    return {path.name for path in data_dir.iterdir()} - {".lock", cifar10.FOLDER}
