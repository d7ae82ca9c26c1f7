"""Look at a folder of pictures before training: how many, of how many classes, how large, gray or not."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from bagcert.data.folder import class_folders, list_images
from bagcert.errors import UsageError
from bagcert.pictures.reading import UNREADABLE

MOST_OPENED = 5000  # pictures; of larger folders, so many from all over the folder
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # EXIF: the sides change places
GRAY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L", "F")


@dataclass(frozen=True)
class Look:
    """What a folder holds. Sizes are height and width."""

    pictures: int
    training: int  # pictures to train on, validation included
    classes: int
    smallest: tuple[int, int]
    typical: tuple[int, int]  # by the shorter side, half of the pictures are no larger
    largest: tuple[int, int]
    gray: bool

    @property
    def uniform(self) -> bool:
        return self.smallest == self.largest

    def __str__(self) -> str:
        sizes = [f"{height}x{width}" for height, width in (self.smallest, self.largest)]
        size = sizes[0] if self.uniform else f"mixed sizes from {sizes[0]} to {sizes[1]}"
        return f"{self.pictures:,} pictures, {self.classes} classes, {size}{', gray' if self.gray else ''}"


def look_at(folder: Path) -> Look:
    """Read the headers of the pictures in FOLDER/train and FOLDER/val."""
    if not (folder / "train").is_dir():
        class_folders(folder)
        raise UsageError(
            f"{folder} has no folder 'train'. To hold out one picture in five for tests: "
            f"bagcert data {folder} --divide {folder.name}-divided"
        )
    classes = class_folders(folder / "train")
    if len(classes) < 2:
        raise UsageError(f"{folder / 'train'} has one class, '{classes[0]}'. Add a sub-folder for each other class.")
    parts = [part for part in (folder / "train", folder / "val") if part.is_dir()]
    listings = [list_images(part, classes).paths for part in parts]
    paths = [path for listing in listings for path in listing]
    every = -(-len(paths) // MOST_OPENED)
    with warnings.catch_warnings(), ThreadPoolExecutor(8) as pool:
        warnings.simplefilter("ignore")  # Pillow's remarks on metadata and large pictures
        headers = [header for header in pool.map(read_header, paths[::every]) if header is not None]
    if not headers:
        raise UsageError(f"None of the pictures in {folder} can be read, such as {paths[0]}. Check their format.")
    sizes = sorted((size for size, _ in headers), key=lambda size: (min(size), max(size)))
    return Look(
        pictures=len(paths),
        training=len(listings[0]),
        classes=len(classes),
        smallest=sizes[0],
        typical=sizes[(len(sizes) - 1) // 2],
        largest=sizes[-1],
        gray=all(gray for _, gray in headers),
    )


def read_header(path: Path) -> tuple[tuple[int, int], bool] | None:
    """Upright height and width, and whether it is gray; None if the file is no picture, which reading it will say."""
    try:
        with Image.open(path) as picture:
            width, height = picture.size
            turned = picture.getexif().get(ORIENTATION) in TURNED
            return ((width, height) if turned else (height, width)), picture.mode in GRAY
    except UNREADABLE:
        return None
