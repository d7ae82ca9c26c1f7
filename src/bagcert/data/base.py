"""What every data set offers: its facts, and four splits that hand out batches."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.data.augment import Augmentation

SPLITS = ("train", "validation", "train+validation", "test")


@dataclass(frozen=True)
class Batch:
    """Images with their labels, on the device that was asked for."""

    images: Tensor  # [b c h w] float32 in [0, 1]
    labels: Tensor  # [b] int64
    index: Tensor  # [b] int64, positions in the split


class Source(ABC):
    """The images of one split."""

    labels: Tensor  # [n] int64, on the CPU

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def batches(
        self,
        batch_size: int,
        device: torch.device | str,
        *,
        epoch_seed: int | None = None,
        start: int = 0,
        drop_last: bool = False,
        augment: Augmentation | None = None,
        shard: tuple[int, int] = (0, 1),
    ) -> Iterator[Batch]:
        """One pass over the split, in batches of `batch_size`.

        `epoch_seed` fixes the order and the augmentation of every batch; None keeps the order of the split.
        `start` skips that many batches, and what follows is bit for bit what an uninterrupted pass gives: all
        randomness comes from `epoch_seed` and the number of the batch, never from a running generator.
        `shard=(rank, world)` yields this rank's contiguous part of each batch; put together, the parts are the batch
        that a single process sees, augmentation included.
        """


class Dataset(ABC):
    """The facts of a data set, the same on every machine."""

    name: str
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # of the training images, per channel, pixels in [0, 1]
    std: tuple[float, ...]
    channels: int
    image_size: tuple[int, int]  # h w
    digest: str  # SHA-256 that identifies the data

    @abstractmethod
    def split(self, name: str) -> Source:
        """One of `SPLITS`; "train" is without the validation images, which are cut from the training data."""
