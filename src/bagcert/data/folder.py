"""Any folder with one sub-folder per class, laid out like ImageNet or without a training part."""

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from bagcert.data.arrays import Arrays, ArraySource
from bagcert.data.base import Dataset, Source, check_split, training_positions
from bagcert.data.stream import FolderSource, decode, default_workers, quiet_fork
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.pictures.reading import ENDINGS

# By the number of channels; of ImageNet, and the means of these for gray pictures.
MEAN = {1: (0.449,), 3: (0.485, 0.456, 0.406)}
STD = {1: (0.226,), 3: (0.229, 0.224, 0.225)}
PARTS = ("train", "val")
MOST_RESIDENT = 32 * 2**30  # bytes of pixels


@dataclass(frozen=True)
class FolderSettings:
    """How a folder is read. The defaults are the usual ones for ImageNet.

    `Framing((64, 64), resize=0)` takes 64x64 images as they are. `skip_broken` reads every image when the folder is
    loaded, leaves out those that cannot be read, and lists them in `FolderDataset.broken`. `resident` decodes every
    image once and keeps all of them on the device: for small folders that are read many times.
    """

    framing: Framing = field(default_factory=Framing)
    workers: int = field(default_factory=default_workers)
    skip_broken: bool = False
    resident: bool = False


@dataclass(frozen=True)
class Listing:
    """The image files of one part, with labels [n]: the first file of each class by name, then the second of each.

    A caller that takes only the first images, to save time, still sees all classes.
    """

    paths: tuple[Path, ...]
    labels: Tensor

    def without(self, broken: Mapping[Path, str], classes: Sequence[str]) -> "Listing":
        keep = [position for position, path in enumerate(self.paths) if path not in broken]
        labels = self.labels[keep]
        for label, name in enumerate(classes):
            if not (labels == label).any():
                first = next(message for path, message in broken.items() if name in path.parts)
                raise UsageError(f"No image of class '{name}' can be used. About the first one: {first}")
        return Listing(tuple(self.paths[position] for position in keep), labels)


def class_folders(folder: Path) -> tuple[str, ...]:
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not names:
        raise UsageError(f"{folder} has no sub-folders. Sort the images into one sub-folder per class.")
    return tuple(names)


def list_images(folder: Path, classes: Sequence[str]) -> Listing:
    """Every class must have a folder with at least one image, and there must be no other folders."""
    found = class_folders(folder)
    if found != tuple(classes):
        odd = sorted(set(found) ^ set(classes))[0]
        raise UsageError(
            f"{folder} must have the {len(classes)} classes of train, but differs in '{odd}'. "
            "Give both the same sub-folders."
        )
    images: list[tuple[int, int, Path]] = []  # position within the class, class
    for label, name in enumerate(classes):
        members = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in ENDINGS)
        if not members:
            kinds = " ".join(ENDINGS)
            raise UsageError(f"{folder / name} holds no images ({kinds}). Add some, or remove the folder.")
        images += [(position, label, path) for position, path in enumerate(members)]
    _, labels, paths = zip(*sorted(images), strict=True)
    return Listing(paths, torch.tensor(labels))


def complaint(path: Path, framing: Framing) -> str | None:
    try:
        decode(path, framing)
    except UsageError as error:
        return str(error)
    return None


def find_broken(paths: Sequence[Path], settings: FolderSettings) -> dict[Path, str]:
    """The images that cannot be used, each with what is wrong."""
    check = partial(complaint, framing=settings.framing)
    if settings.workers == 0:
        told = list(map(check, paths))
    else:
        with quiet_fork(), ProcessPoolExecutor(settings.workers) as pool:
            told = list(pool.map(check, paths, chunksize=64))
    return {path: message for path, message in zip(paths, told, strict=True) if message is not None}


def folder_digest(root: Path, listings: Sequence[Listing], framing: Framing) -> str:
    """A hash of names, sizes in bytes and framing. Reading 150 GB of pixels at every start would take too long."""
    digest = hashlib.sha256(repr(framing).encode())
    for listing in listings:
        for path in listing.paths:
            digest.update(f"\n{path.relative_to(root).as_posix()} {path.stat().st_size}".encode())
    return digest.hexdigest()


class FolderDataset(Dataset):
    """`FOLDER/train/<class>/*` and `FOLDER/val/<class>/*`, or `FOLDER/<class>/*` alone.

    The split "test" is `val`, and "validation" is cut from `train`. In a folder without `train` and `val`, all images
    are "test": they may be certified and attacked, but not trained on, so that no image is used for both.
    """

    def __init__(self, folder: Path, settings: FolderSettings | None = None):
        self.settings = settings or FolderSettings()
        self.name = str(folder)
        self.folder = folder
        parts = [folder / name for name in PARTS if (folder / name).is_dir()]
        self.classes = class_folders(parts[0] if parts else folder)
        self.framing = self.settings.framing
        self.channels, self.image_size = self.framing.channels, self.framing.size
        self.mean, self.std = MEAN[self.channels], STD[self.channels]
        listings = {part.name: list_images(part, self.classes) for part in parts}
        listings = listings or {"val": list_images(folder, self.classes)}
        self.broken: dict[Path, str] = {}
        if self.settings.skip_broken:
            paths = [path for listing in listings.values() for path in listing.paths]
            self.broken = find_broken(paths, self.settings)
            listings = {name: listing.without(self.broken, self.classes) for name, listing in listings.items()}
        self.listings = listings
        self._decoded: dict[str, Arrays] = {}
        self.digest = folder_digest(folder, list(listings.values()), self.settings.framing)

    def split(self, name: str) -> Source:
        check_split(name)
        part = "val" if name == "test" else "train"
        if part not in self.listings:
            raise UsageError(
                f"{self.folder} has no folder '{part}', which the split '{name}' needs. "
                f"Lay the images out as {self.folder}/train/<class>/* and {self.folder}/val/<class>/*."
            )
        paths, labels = self.listings[part].paths, self.listings[part].labels
        positions = torch.arange(len(labels)) if name == "test" else training_positions(name, labels)
        if self.settings.resident:
            return ArraySource(self.decoded(part), positions)
        chosen = tuple(paths[position] for position in positions.tolist())
        return FolderSource(chosen, labels[positions], self.settings.framing, self.settings.workers)

    def decoded(self, part: str) -> Arrays:
        """All images of a part in memory, each cropped at its center."""
        if part not in self._decoded:
            listing = self.listings[part]
            shape = (len(listing.paths), self.channels, *self.image_size)
            size = prod(shape)
            if size > MOST_RESIDENT:
                raise UsageError(
                    f"{self.folder / part} has {size / 2**30:.0f} GiB of pixels, but at most "
                    f"{MOST_RESIDENT / 2**30:.0f} GiB are kept on the device. Set data.resident=false to stream them."
                )
            source = FolderSource(listing.paths, listing.labels, self.settings.framing, self.settings.workers)
            images = torch.empty(shape, dtype=torch.uint8)
            filled = 0
            for batch in source.bytes_in_order():
                images[filled : filled + len(batch)] = batch
                filled += len(batch)
            self._decoded[part] = Arrays(images, listing.labels)
        return self._decoded[part]
