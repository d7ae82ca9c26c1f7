"""Data sets that are small enough to live on the device, as uint8 arrays that are indexed there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from bagcert.data.augment import Augmentation
from bagcert.data.base import (
    Batch,
    Dataset,
    Source,
    check_split,
    draws_of_step,
    epoch_order,
    require_seed,
    steps,
    training_positions,
)
from bagcert.errors import UsageError
from bagcert.pictures.framing import to_unit


def upload(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to the device without making the host wait."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


@dataclass(frozen=True, eq=False)
class Arrays:
    """Images and labels on the CPU, with a copy on each device that asked for one."""

    images: Tensor  # [n c h w] uint8
    labels: Tensor  # [n] int64
    copies: dict[torch.device, tuple[Tensor, Tensor]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise UsageError(f"Images must be uint8 [n c h w], but are {self.images.dtype} {list(self.images.shape)}.")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise UsageError(
                f"Labels must be int64 [{len(self.images)}], but are {self.labels.dtype} {list(self.labels.shape)}."
            )

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device not in self.copies:
            self.copies[device] = (self.images.to(device), self.labels.to(device))
        return self.copies[device]


class ArraySource(Source):
    """The images of `arrays` at `positions` [n], all of them by default."""

    def __init__(self, arrays: Arrays, positions: Tensor | None = None):
        self.arrays = arrays
        self.positions = torch.arange(len(arrays.labels)) if positions is None else positions
        self.labels = arrays.labels[self.positions]

    def between(self, first: int, last: int) -> "ArraySource":
        return ArraySource(self.arrays, self.positions[first:last])

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
        device = torch.device(device)
        images, labels = self.arrays.on(device)
        order = epoch_order(len(self), epoch_seed)
        index, picks = upload(order, device), upload(self.positions[order], device)
        if augment is not None:
            require_seed(epoch_seed)
        for step in steps(len(self), batch_size, start, drop_last, shard):
            mine = picks[step.mine]
            chosen = images.index_select(0, mine)
            if augment is not None:  # on bytes: a quarter of the memory traffic of floats
                chosen = augment.apply(chosen, draws_of_step(augment, step, epoch_seed, device))
            yield Batch(to_unit(chosen), labels.index_select(0, mine), index[step.mine])


class ArrayDataset(Dataset):
    """A data set in memory; the validation split is cut from `train`."""

    def __init__(
        self,
        name: str,
        classes: Sequence[str],
        statistics: tuple[Sequence[float], Sequence[float]],  # mean and std per channel
        train: Arrays,
        test: Arrays,
        digest: str,
    ):
        self.name = name
        self.classes = tuple(classes)
        self.mean, self.std = tuple(statistics[0]), tuple(statistics[1])
        self.channels, height, width = train.images.shape[1:]
        self.image_size = (height, width)
        self.digest = digest
        self.train, self.test = train, test

    def split(self, name: str) -> Source:
        check_split(name)
        if name == "test":
            return ArraySource(self.test)
        return ArraySource(self.train, training_positions(name, self.train.labels))
