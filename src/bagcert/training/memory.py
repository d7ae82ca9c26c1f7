"""How much memory a training takes, estimated before its first step, and how much there is."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from bagcert.data import FolderDataset
from bagcert.data.base import Dataset
from bagcert.errors import UsageError
from bagcert.scorers.base import Scorer
from bagcert.scorers.weights import outline
from bagcert.training.recipe import Recipe

COPIES = 6  # of all weights: themselves, gradients, two moments, an average, and one more while a step is taken
WORKING = 3  # tensors as large as the largest one that is kept for the gradients, in the midst of a step
EVALUATING = 5  # such tensors while images are scored without gradients
SCORES = 12  # score maps as int32 while a rule certifies them
FRAGMENTS = 4 * 10**8  # bytes that allocator and kernels take beside the tensors, at most, in six trainings on a CPU
MACHINE, PROCESS, CONTAINER = Path("/proc/meminfo"), Path("/proc/self/status"), Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Demand:
    """Bytes on the device: in any case, per picture of a training step, and per picture that is certified at once."""

    fixed: int
    trained: int
    evaluated: int

    def total(self, recipe: Recipe, processes: int = 1) -> int:
        """The most at any time, in one of the processes."""
        return max(
            self.fixed + self.trained * recipe.training.batch_size // processes,
            self.fixed + self.evaluated * recipe.evaluation.batch_size // processes,
        )

    def check(self, recipe: Recipe, free: int, processes: int = 1) -> None:
        """Refuse what does not fit into `free` bytes, and name the setting that does."""
        if self.total(recipe, processes) <= free:
            return
        problem = f"This needs about {gigabytes(self.total(recipe, processes))}, but {gigabytes(free)} are free."
        cures = []
        for key, size, each in (
            ("training.batch_size", recipe.training.batch_size, self.trained),
            ("evaluation.batch_size", recipe.evaluation.batch_size, self.evaluated),
        ):
            fitting = (free - self.fixed) // each * processes
            if fitting < 2 * processes:
                raise UsageError(f"{problem} Not even two pictures fit: set a smaller data.crop or network.width.")
            if fitting < size:
                cures.append(f"--set {key}={rounded_down(fitting // processes) * processes}")
        raise UsageError(f"{problem} Add {' '.join(cures)}.")


def rounded_down(number: int) -> int:
    """A tenth to spare, then two digits and zeros."""
    digits = str(max(1, number * 9 // 10))
    return int(digits[:2].ljust(len(digits), "0"))


def check_weights(recipe: Recipe, dataset: Dataset, free: int | None) -> None:
    """Refuse a network that does not fit into memory, before it is built."""
    if recipe.network.brings_weights:
        return
    needed = COPIES * bytes_of(outline(recipe.network, dataset.image_size).parameters())
    if free is not None and needed > free:
        raise UsageError(
            f"The weights of this network need about {gigabytes(needed)} in training, but {gigabytes(free)} are free. "
            "Set a smaller network.width."
        )


def measure(objective: nn.Module, scorer: Scorer, dataset: Dataset, device: torch.device) -> Demand:
    """What a training step keeps, from one of two black pictures; `objective` is the loss of a batch as a module.

    Everything that is kept for the gradients grows with the number of pictures, except the weights themselves.
    """
    images = torch.zeros(2, dataset.channels, *dataset.image_size, device=device)
    trial = copy.deepcopy(objective)  # its batch norms take these pictures into their averages
    own = {value.untyped_storage().data_ptr() for value in (*trial.parameters(), *trial.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        trial(images, torch.zeros(2, dtype=torch.int64, device=device))
    largest = max([*kept.values(), images.nbytes]) // len(images)
    weights = bytes_of(scorer.parameters())
    maps = 4 * len(dataset.classes) * prod(scorer.footprint.grid)
    return Demand(
        fixed=COPIES * weights + resident_bytes(dataset) + FRAGMENTS,
        trained=sum(kept.values()) // len(images) + WORKING * largest,
        evaluated=EVALUATING * largest + SCORES * maps,
    )


def bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def resident_bytes(dataset: Dataset) -> int:
    """The pixels of a folder that stay in memory; data sets with a name are there already."""
    if not isinstance(dataset, FolderDataset) or not dataset.settings.resident:
        return 0
    pictures = sum(len(listing.paths) for listing in dataset.listings.values())
    return pictures * dataset.channels * dataset.image_size[0] * dataset.image_size[1]


def free_memory(device: torch.device) -> int | None:
    """Bytes that this process may still take; None if the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    limits = [1024 * number for number in numbers_of(MACHINE, "MemAvailable:")]
    most, used = lines_of(CONTAINER / "memory.max"), lines_of(CONTAINER / "memory.current")
    if most and used and most[0].isdigit():  # else "max": no limit
        files = sum(numbers_of(CONTAINER / "memory.stat", "inactive_file"))  # kept only while nobody needs the room
        limits.append(int(most[0]) - int(used[0]) + files)
    return min(limits, default=None)


def used_memory(device: torch.device) -> int:
    """Bytes that this process takes by now."""
    if device.type == "cuda":
        return torch.cuda.memory_reserved(device)
    return 1024 * sum(numbers_of(PROCESS, "VmRSS:"))


def numbers_of(path: Path, name: str) -> list[int]:
    """The number after this name in a file of the system; none if there is no such file or name."""
    return [int(line.split()[1]) for line in lines_of(path) if line.split()[:1] == [name]]


def lines_of(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:  # not on this system
        return []


def gigabytes(number: int) -> str:
    return f"{number / 1e9:,.1f} GB"
