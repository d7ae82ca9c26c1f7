"""Data sets by name."""

from collections.abc import Callable
from pathlib import Path

from bagcert.data.base import Dataset, data_folder
from bagcert.data.cifar10 import load_cifar10
from bagcert.data.digits import load_digits
from bagcert.data.fashion import load_fashion_mnist
from bagcert.data.folder import FolderDataset, FolderSettings
from bagcert.errors import unknown_name

LOADERS: dict[str, Callable[[Path | None], Dataset]] = {
    "cifar10": load_cifar10,
    "digits": lambda _: load_digits(),
    "fashion-mnist": load_fashion_mnist,
}
NATIVE_SIZES = {"cifar10": 32, "digits": 8, "fashion-mnist": 28}  # pixels along a side


def load_dataset(name_or_folder: str, data_dir: Path | None = None, folder: FolderSettings | None = None) -> Dataset:
    """A data set by its name, or a folder with one sub-folder per class, read with the settings of `folder`.

    We look for named data sets in `data_dir`, else in `BAGCERT_DATA`, else in `~/.cache/bagcert`. We look there for
    folders too if their path does not exist.
    """
    if name_or_folder in LOADERS:
        return LOADERS[name_or_folder](data_dir)
    return FolderDataset(find_folder(name_or_folder, data_dir), folder)


def find_folder(name: str, data_dir: Path | None = None) -> Path:
    """The folder at this path, or of this name among the data sets."""
    path = Path(name).expanduser()
    path = path if path.is_dir() else data_folder(data_dir) / path
    if not path.is_dir():
        raise unknown_name("data set or folder", name, LOADERS)
    return path
