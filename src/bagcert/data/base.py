"""What every data set offers: its facts, and four splits that yield batches."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from bagcert.data.augment import Augmentation, Draws
from bagcert.errors import UsageError, unknown_name
from bagcert.pictures import Framing

SPLITS = ("train", "validation", "train+validation", "test")


@dataclass(frozen=True)
class Batch:
    """Images and labels, on the device that the caller asked for."""

    images: Tensor  # [b c h w] float32 in [0, 1]
    labels: Tensor  # [b] int64
    index: Tensor  # [b] int64, positions in the split


class Source(ABC):
    """The images of one split."""

    labels: Tensor  # [n] int64, on the CPU

    def __len__(self) -> int:
        return len(self.labels)

    @abstractmethod
    def between(self, first: int, last: int) -> "Source":
        """The images from `first` up to, but without, `last`; positions count from `first`."""

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
        `start` skips that many batches. The rest is bit for bit what an uninterrupted pass yields: all randomness comes
        from `epoch_seed` and the number of the batch, never from a running generator.
        `shard=(rank, world)` yields this rank's contiguous part of each batch. Together the parts are the batch that a
        single process would see, augmentation included.
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
    framing: Framing | None = None  # of pictures of any size; None: all images have one size

    @abstractmethod
    def split(self, name: str) -> Source:
        """One of `SPLITS`. The validation images are cut from the training data, so "train" does not hold them."""


VALIDATION_SEED = 2021  # the year of the paper; another number changes every validation split
VALIDATION_SHARE = 10  # one image in ten: 5,000 of CIFAR-10's 50,000


def cut(labels: Tensor, share: int, seed: int) -> Tensor:
    """True for one image in `share` of each class (rounded down, at least one), the same on every machine.

    Each image gets a 64-bit key, and the lowest keys of a class are taken. The keys are the raw output of PCG64, which
    numpy promises never to change; it does not promise this for its `Generator`, nor does torch for its own.
    """
    keys = np.random.PCG64(seed).random_raw(len(labels))
    taken = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels.numpy()):
        members = np.flatnonzero(labels.numpy() == label)
        ranked = members[np.argsort(keys[members], kind="stable")]
        taken[ranked[: max(1, len(members) // share)]] = True
    return torch.from_numpy(taken)


def training_positions(split: str, labels: Tensor) -> Tensor:
    """The positions of a split's images in the training data, in rising order; for every split except "test"."""
    held_out = cut(labels, VALIDATION_SHARE, VALIDATION_SEED)
    chosen = {"train": ~held_out, "validation": held_out, "train+validation": torch.ones_like(held_out)}
    return chosen[split].nonzero()[:, 0]


def check_split(name: str) -> None:
    if name not in SPLITS:
        raise unknown_name("split", name, SPLITS)


@dataclass(frozen=True)
class Step:
    """One batch of an epoch, as a range in the epoch's order."""

    number: int
    first: int  # of the global batch
    size: int  # of the global batch; the last one may be short
    part: slice  # of the global batch, for this rank

    @property
    def mine(self) -> slice:
        """This rank's range in the epoch's order."""
        return slice(self.first + self.part.start, self.first + self.part.stop)


def epoch_order(length: int, epoch_seed: int | None) -> Tensor:
    """The positions in the order of the epoch, drawn on the CPU: the order is the same for every device."""
    if epoch_seed is None:
        return torch.arange(length)
    return torch.randperm(length, generator=Generator().manual_seed(epoch_seed))


def derive_seed(*parts: object) -> int:
    """One seed from several values, by a hash, so that no two uses share their random numbers."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 1


def steps(length: int, batch_size: int, start: int, drop_last: bool, shard: tuple[int, int]) -> Iterator[Step]:
    """The batches of an epoch from number `start` on, each with this rank's part.

    A short last batch is divided as evenly as possible. If it has fewer images than there are ranks, some parts are
    empty, so all ranks still take the same number of steps.
    """
    rank, world = shard
    if not 0 <= rank < world:
        raise UsageError(f"The rank must lie in 0..{world - 1}, but is {rank}.")
    if batch_size < 1 or batch_size % world:
        raise UsageError(f"The batch size must be a multiple of the {world} processes, but is {batch_size}.")
    if start < 0:
        raise UsageError(f"The first batch must have a number of 0 or more, but has {start}.")
    count = length // batch_size if drop_last else -(-length // batch_size)
    for number in range(start, count):
        first = number * batch_size
        size = min(batch_size, length - first)
        yield Step(number, first, size, slice(rank * size // world, (rank + 1) * size // world))


def draws_of_step(augment: Augmentation, step: Step, epoch_seed: int | None, device: torch.device) -> Draws:
    """This rank's part of the random numbers of the global batch."""
    generator = Generator(device).manual_seed(derive_seed(require_seed(epoch_seed), step.number))
    return augment.draw(step.size, generator).part(step.part)


def require_seed(epoch_seed: int | None) -> int:
    if epoch_seed is None:
        raise UsageError("Augmentation needs an epoch_seed. Pass one, or leave out augment.")
    return epoch_seed


def data_folder(data_dir: Path | None = None) -> Path:
    """The given folder, else `BAGCERT_DATA`, else `~/.cache/bagcert`."""
    if data_dir is not None:
        return data_dir.expanduser()
    return Path(os.environ.get("BAGCERT_DATA") or "~/.cache/bagcert").expanduser()
