"""`bagcert data`: fetch a data set and check it."""

from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from typer import Argument, Option

from bagcert.data import SPLITS, Dataset, FolderDataset, FolderSettings, load_dataset
from bagcert.data.catalog import find_folder
from bagcert.data.cifar10_sources import fetch_cifar10
from bagcert.data.divide import divide
from bagcert.errors import UsageError
from bagcert.pictures import Framing


def data(
    name: Annotated[str, Argument(help="cifar10, fashion-mnist, digits, or a folder with one sub-folder per class")],
    data_dir: Annotated[
        Path | None, Option(help="folder of the data sets; default: BAGCERT_DATA, else ~/.cache/bagcert")
    ] = None,
    resize: Annotated[int, Option(help="for folders: length to scale the shorter side to; 0 keeps the size")] = 256,
    crop: Annotated[int, Option(help="for folders: side of the square to cut out")] = 224,
    divide_into: Annotated[
        Path | None,
        Option("--divide", metavar="NEW", help="copy FOLDER/CLASS/* to NEW/train/CLASS/* and, one in five, to NEW/val"),
    ] = None,
) -> None:
    console = Console(highlight=False, soft_wrap=True)
    if divide_into is not None:
        training, held_out = divide(find_folder(name, data_dir), divide_into)
        console.print(
            f"copied {training:,} pictures to {divide_into / 'train'} and {held_out:,} to {divide_into / 'val'}"
        )
        return
    if name == "cifar10":
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            fetch_cifar10(data_dir, progress)
    settings = FolderSettings(Framing((crop, crop), resize), skip_broken=True)
    dataset = load_dataset(name, data_dir, settings)
    console.print(summary(dataset), markup=False)
    if isinstance(dataset, FolderDataset) and dataset.broken:
        for message in dataset.broken.values():
            console.print(message, markup=False)
        raise UsageError(f"Unreadable images: {len(dataset.broken)}. Remove them, or train with --skip-broken.")


def summary(dataset: Dataset) -> str:
    """Two lines: what the images are, and how many images each split has."""
    height, width = dataset.image_size
    facts = f"{dataset.name}: {len(dataset.classes)} classes, {dataset.channels}x{height}x{width}"
    return f"{facts}, SHA-256 {dataset.digest[:16]}\n{', '.join(split_sizes(dataset))}"


def split_sizes(dataset: Dataset) -> list[str]:
    sizes = []
    for split in SPLITS:
        try:
            sizes.append(f"{split} {len(dataset.split(split))}")
        except UsageError:  # a folder without a training part
            sizes.append(f"{split} none")
    return sizes
