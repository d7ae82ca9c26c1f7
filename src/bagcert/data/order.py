"""Which images make up which batch: a function of the epoch's seed alone."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from bagcert.data.augment import Augmentation, Draws
from bagcert.errors import UsageError


@dataclass(frozen=True)
class Step:
    """One batch of an epoch, as a range of the epoch's order."""

    number: int
    first: int  # of the global batch
    size: int  # of the global batch; the last one may be short
    part: slice  # of the global batch, for this rank

    @property
    def mine(self) -> slice:
        """This rank's range of the epoch's order."""
        return slice(self.first + self.part.start, self.first + self.part.stop)


def epoch_order(length: int, epoch_seed: int | None) -> Tensor:
    """Positions in the order in which the epoch takes them; drawn on the CPU, so it is the same for every device."""
    if epoch_seed is None:
        return torch.arange(length)
    return torch.randperm(length, generator=Generator().manual_seed(epoch_seed))


def batch_seed(epoch_seed: int, number: int) -> int:
    """A seed for the augmentation of one batch; hashed, so that neighboring batches and epochs share nothing."""
    return int.from_bytes(hashlib.sha256(f"{epoch_seed}/{number}".encode()).digest()[:8], "big") >> 1


def steps(length: int, batch_size: int, start: int, drop_last: bool, shard: tuple[int, int]) -> Iterator[Step]:
    """The batches of an epoch from number `start` on, each with the part of this rank.

    A short last batch is shared out as evenly as it goes; with fewer images than ranks some parts are empty, so that
    all ranks still take the same number of steps.
    """
    rank, world = shard
    if not 0 <= rank < world:
        raise UsageError(f"expected a rank in 0..{world - 1}, got {rank}")
    if batch_size < 1 or batch_size % world:
        raise UsageError(f"expected a batch size divisible by {world} processes, got {batch_size}")
    if start < 0:
        raise UsageError(f"expected a start of 0 or more batches, got {start}")
    count = length // batch_size if drop_last else -(-length // batch_size)
    for number in range(start, count):
        first = number * batch_size
        size = min(batch_size, length - first)
        yield Step(number, first, size, slice(rank * size // world, (rank + 1) * size // world))


def draws_of_step(
    augment: Augmentation, step: Step, epoch_seed: int | None, image_size: tuple[int, int], device: torch.device
) -> Draws:
    """This rank's part of the random numbers of the global batch."""
    generator = Generator(device).manual_seed(batch_seed(require_seed(epoch_seed), step.number))
    return augment.draw(step.size, image_size, generator).part(step.part)


def require_seed(epoch_seed: int | None) -> int:
    if epoch_seed is None:
        raise UsageError("expected an epoch_seed with augment, got none; give one or leave augment out")
    return epoch_seed
