"""Image files to batches: worker processes decode each file, of any mode, orientation and size, to a uint8 array."""

import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from bagcert.data.arrays import upload
from bagcert.data.augment import Augmentation
from bagcert.data.base import Batch, Source, Step, derive_seed, draws_of_step, epoch_order, require_seed, steps
from bagcert.errors import UsageError, first_line
from bagcert.pictures.framing import Framing, to_unit
from bagcert.pictures.reading import read_file


def read_image(path: Path, channels: int) -> Image.Image:
    """The decoded image. A file that cannot be read is an error that names the file and says what to do."""
    try:
        return read_file(path, channels)
    except UsageError as error:
        gone = "Start again, so that the folder is listed anew."
        remedy = "Remove it, or train with --skip-broken." if path.exists() else gone
        raise UsageError(f"{error} {remedy}") from None


def decode(path: Path, framing: Framing, position: tuple[float, float] | None = None) -> Tensor:
    """uint8 [c h w]. `position` in [0, 1)² picks one of all positions of the crop; None: the center."""
    picture = read_image(path, framing.channels)
    try:
        pixels = framing.frame(picture, position)  # h w c
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def default_workers() -> int:
    """One per processor core that this process may use, up to 16."""
    return min(16, len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)


@contextmanager
def quiet_fork() -> Iterator[None]:
    """Python 3.12 warns of every fork beside threads. Our workers only use Pillow, which holds no lock over a fork."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        yield


@dataclass(frozen=True)
class BatchFiles:
    """What a worker needs to read one batch."""

    paths: tuple[Path, ...]
    positions: tuple[tuple[float, float], ...] | None = None  # of the random crops; None: center crops


class BatchReader(TorchDataset[Tensor | str]):
    """Runs in the workers. It returns an error as its message: the loader would wrap an exception in a traceback."""

    def __init__(self, batches: Sequence[BatchFiles], framing: Framing):
        self.batches, self.framing = batches, framing

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Tensor | str:
        batch = self.batches[number]
        positions = batch.positions or [None] * len(batch.paths)
        try:
            images = [decode(path, self.framing, at) for path, at in zip(batch.paths, positions, strict=True)]
        except UsageError as error:
            return str(error)
        return torch.stack(images) if images else torch.empty(0, self.framing.channels, *self.framing.size).byte()


def random_positions(step: Step, epoch_seed: int) -> tuple[tuple[float, float], ...]:
    """This rank's part of the global batch's crop positions, from raw PCG64 output."""
    raw = np.random.PCG64(derive_seed(epoch_seed, step.number)).random_raw(2 * step.size)
    unit = (raw >> np.uint64(11)) * 2.0**-53  # the usual 53 bits to [0, 1)
    return tuple((float(down), float(right)) for down, right in unit.reshape(-1, 2)[step.part])


class FolderSource(Source):
    """Image files and their labels [n], with only a few batches in memory at a time."""

    def __init__(self, paths: Sequence[Path], labels: Tensor, framing: Framing, workers: int):
        self.paths, self.labels, self.framing, self.workers = tuple(paths), labels, framing, workers

    def between(self, first: int, last: int) -> "FolderSource":
        return FolderSource(self.paths[first:last], self.labels[first:last], self.framing, self.workers)

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
        """As for every source. With `augment`, the crops also lie at random positions instead of the center."""
        device = torch.device(device)
        order = epoch_order(len(self), epoch_seed)
        todo = list(steps(len(self), batch_size, start, drop_last, shard))
        files = [
            BatchFiles(
                paths=tuple(self.paths[position] for position in order[step.mine].tolist()),
                positions=None if augment is None else random_positions(step, require_seed(epoch_seed)),
            )
            for step in todo
        ]
        for step, read in zip(todo, self.read(files, device), strict=True):
            images = read.to(device, non_blocking=True)
            if augment is not None:
                images = augment.apply(images, draws_of_step(augment, step, epoch_seed, device))
            index = order[step.mine]
            yield Batch(to_unit(images), upload(self.labels[index], device), upload(index, device))

    def bytes_in_order(self) -> Iterator[Tensor]:
        """All images in the order of the files, uint8 [b c h w]."""
        parts = [self.paths[start : start + 100] for start in range(0, len(self.paths), 100)]
        yield from self.read([BatchFiles(part) for part in parts], torch.device("cpu"))

    def read(self, files: Sequence[BatchFiles], device: torch.device) -> Iterator[Tensor]:
        """uint8 batches in order, read ahead by the workers."""
        workers = min(self.workers, len(files))
        loader = DataLoader(
            BatchReader(files, self.framing), batch_size=None, num_workers=workers, pin_memory=device.type == "cuda"
        )
        try:
            with quiet_fork():
                batches = iter(loader)
            for read in batches:
                if isinstance(read, str):
                    raise UsageError(read)
                yield read
        except RuntimeError as error:  # the loader watches its workers, so we do not wait for a dead one
            if "DataLoader worker" not in str(error):
                raise
            remedy = "Set fewer workers, or free some memory."
            raise UsageError(f"One of {workers} reading processes died: {first_line(error)}. {remedy}") from None
