"""Pictures of four tiles, each an image of a data set: their labels and the class of every pixel are known."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.data import ArrayDataset, Augmentation, Source
from bagcert.data.base import derive_seed
from bagcert.errors import UsageError

SIDE = 2  # tiles along each side of a picture
TILES = SIDE * SIDE


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures on a device, and the class of each tile."""

    images: Tensor  # [b c h w]
    tiles: Tensor  # int64 [b side side]

    def __len__(self) -> int:
        return len(self.images)

    def present(self, classes: int) -> Tensor:
        """Which labels are there, bool [b k]."""
        found = torch.zeros(len(self), classes, dtype=torch.bool, device=self.tiles.device)
        return found.scatter(1, self.tiles.flatten(1), True)

    def pixels(self, grid: tuple[int, int]) -> Tensor:
        """The class of each position of a grid that divides evenly among the tiles, int64 [b i j]."""
        rows = self.tiles.repeat_interleave(grid[0] // SIDE, dim=1)
        return rows.repeat_interleave(grid[1] // SIDE, dim=2)


def tiled(images: Tensor, labels: Tensor) -> Pictures:
    """Pictures of four images each, one after another; images that do not fill a picture are left out."""
    count = len(images) // TILES
    channels, height, width = images.shape[1:]
    parts = images[: count * TILES].view(count, SIDE, SIDE, channels, height, width)
    whole = parts.permute(0, 3, 1, 4, 2, 5).reshape(count, channels, SIDE * height, SIDE * width)
    return Pictures(whole, labels[: count * TILES].view(count, SIDE, SIDE))


def picture_size(dataset: ArrayDataset) -> tuple[int, int]:
    return SIDE * dataset.image_size[0], SIDE * dataset.image_size[1]


def fixed_pictures(source: Source, count: int, device: torch.device) -> Pictures:
    """The first pictures of a split: its images four by four, in their order."""
    batch = next(iter(source.batches(min(count, len(source) // TILES) * TILES, device)))
    return tiled(batch.images, batch.labels)


def training_pictures(
    source: Source, batch: int, seed: int, device: torch.device, first: int = 0
) -> Iterator[Pictures]:
    """New combinations of the images in every epoch, without end; from batch number `first` on."""
    count = batch * TILES
    if count > len(source):
        raise UsageError(f"A batch takes {count} images, but there are {len(source)}. Use smaller batches.")
    epoch, start = divmod(first, len(source) // count)
    while True:
        order = derive_seed(seed, "tiles", epoch)
        augment = Augmentation()
        for part in source.batches(count, device, epoch_seed=order, start=start, drop_last=True, augment=augment):
            yield tiled(part.images, part.labels)
        epoch, start = epoch + 1, 0
