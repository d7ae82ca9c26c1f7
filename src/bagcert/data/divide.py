"""Divide a folder of class folders into pictures to train on and pictures to test on."""

import shutil
from pathlib import Path

from bagcert.data.base import cut
from bagcert.data.folder import PARTS, class_folders, list_images
from bagcert.errors import UsageError

SEED, SHARE = 2022, 5  # of each class, one picture in five is held out


def divide(folder: Path, new: Path) -> tuple[int, int]:
    """Copy FOLDER/CLASS/* to NEW/train/CLASS/* and NEW/val/CLASS/*; the number of pictures in each.

    The copies are files, so that nobody can train on what another command takes for a test.
    """
    classes = class_folders(folder)
    if set(classes) & set(PARTS):
        raise UsageError(f"{folder} is divided already: it has a folder '{(set(classes) & set(PARTS)).pop()}'.")
    if new.exists():
        raise UsageError(f"{new} exists already. Choose another name.")
    listing = list_images(folder, classes)
    held_out = cut(listing.labels, SHARE, SEED).tolist()
    for path, tested in zip(listing.paths, held_out, strict=True):
        target = new / PARTS[int(tested)] / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return len(held_out) - sum(held_out), sum(held_out)
