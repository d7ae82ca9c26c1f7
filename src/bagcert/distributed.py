"""The processes that work together: a single one, or those that torchrun started."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """This process, number `rank` of `size`, and its device."""

    device: torch.device
    rank: int = 0
    size: int = 1

    @property
    def shard(self) -> tuple[int, int]:
        return self.rank, self.size

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def share(self, number: float) -> float:
        """The first process's number, on every process."""
        tensor = torch.tensor(number, dtype=torch.float64, device=self.device)
        if self.size > 1:
            dist.broadcast(tensor, src=0)
        return float(tensor)

    def gather(self, part: T) -> list[T]:
        """On the first process, the parts of all processes in order; on the others, an empty list."""
        if self.size == 1:
            return [part]
        parts: list[T] | None = [part] * self.size if self.is_main else None
        dist.gather_object(part, parts)
        return parts or []


@contextmanager
def joined_world() -> Iterator[World]:
    """Join the processes that torchrun started, by NCCL on GPUs and gloo on CPUs. Without torchrun, a world of one."""
    size, rank, local = (int(os.environ.get(name, default)) for name, default in _ENVIRONMENT)
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", local) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if size == 1:
        yield World(device)
        return
    dist.init_process_group("nccl" if cuda else "gloo", device_id=device if cuda else None)
    try:
        yield World(device, rank, size)
    finally:
        dist.destroy_process_group()


_ENVIRONMENT = (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0"))
