"""What a network keeps between calls: weights, buffers, attributes and random numbers drawn."""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from types import FunctionType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bagcert.errors import UsageError


@contextmanager
def unchanged(network: nn.Module) -> Iterator[None]:
    """Refuse a network whose forward passes, run inside, change it in any way or draw random numbers.

    The generators of torch, Python and numpy are reset afterwards.
    """
    before, drawn = state(network), generators()
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(range(len(gpu_generators()))):
        try:
            yield
            after, drawn_after = state(network), generators()
        finally:
            random.setstate(python)
            np.random.set_state(arrays)
    if drawn_after != drawn:
        raise UsageError("A network must be free of noise, but this one draws random numbers. Remove what draws them.")
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if changed:
        raise UsageError(
            f"A forward pass must leave the network as it was, but this one changes '{changed[0]}'. "
            "Remove counters, caches and running statistics."
        )


def state(network: nn.Module) -> dict[str, object]:
    """Everything that the modules of a network hold, by name, in a form that can be compared by value."""
    listed = {id(module): number for number, module in enumerate(network.modules())}
    found = {}
    for prefix, module in network.named_modules():
        held = {**vars(module), **module._parameters, **module._buffers}
        for name in held.keys() - {"_parameters", "_buffers", "_modules"}:
            found[f"{prefix}.{name}" if prefix else name] = frozen(held[name], dict(listed))
    return found


def frozen(value: Any, met: dict[int, int]) -> object:
    """A copy that can be compared by value; an object that was met before is named by its number."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value), repr(value)  # NaN equals itself, 0 differs from -0
    if id(value) in met:
        return "met", met[id(value)]
    met[id(value)] = len(met)
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), digest(value)
    if isinstance(value, torch.Generator):
        return digest(value.get_state())
    if isinstance(value, dict):
        return [(frozen(key, met), frozen(each, met)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [frozen(each, met) for each in value]
    if hasattr(value, "__dict__") and not isinstance(value, FunctionType | type):
        return type(value), frozen(vars(value), met)
    try:
        return pickle.dumps(value)  # sets, arrays, counters, numpy's generators
    except Exception:  # functions, locks, files: we can only tell whether it is the same object
        return id(value)


def digest(tensor: Tensor) -> bytes:
    return sha256(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data).digest()


def generators() -> tuple[object, ...]:
    """The state of every global generator: of torch on each device, of Python and of numpy."""
    drawn = [digest(each) for each in (torch.get_rng_state(), *gpu_generators())]
    return (*drawn, random.getstate(), frozen(np.random.get_state(legacy=False), {}))


def gpu_generators() -> list[Tensor]:
    """One per GPU; none if this process has not used a GPU yet."""
    return torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
