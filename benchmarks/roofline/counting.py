"""What a network and a rule do: multiply-adds and bytes of each layer as it runs, operations of each sum."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass(frozen=True)
class Step:
    """One call of a layer. It reads input and weights once and writes its output once, at the least."""

    kind: str
    multiply_adds: int
    values: int  # read or written

    @property
    def flops(self) -> int:
        """A multiplication and an addition are two."""
        return 2 * self.multiply_adds

    def seconds(self, flops_per_second: float, values_per_second: float) -> float:
        """The least time: that of the arithmetic or of the transfers, whichever takes longer."""
        return max(self.flops / flops_per_second, self.values / values_per_second)


def kind_of(layer: nn.Conv2d | nn.Linear) -> str:
    if isinstance(layer, nn.Conv2d) and layer.kernel_size in ((1, 1), (3, 3)):
        return "{}x{}".format(*layer.kernel_size)
    return "other"


@contextmanager
def steps_of(network: nn.Module) -> Iterator[list[Step]]:
    """The convolutions and fully connected layers that run inside; a layer that is called twice counts twice."""
    found: list[Step] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        # Every output is a sum over the weights of its channel, as many as inputs it sees.
        summed = layer.weight[0].numel()
        values = inputs[0].numel() + layer.weight.numel() + output.numel()
        found.append(Step(kind_of(layer), output.numel() * summed, values))

    layers = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(note) for layer in layers]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def by_kind(steps: list[Step]) -> dict[str, list[Step]]:
    return {
        kind: chosen for kind in ("3x3", "1x1", "other") if (chosen := [step for step in steps if step.kind == kind])
    }


# Views, new tensors and copies; each stands for all names that begin with it.
FREE = (
    *("view", "expand", "slice", "select", "unsqueeze", "squeeze", "permute", "transpose", "split", "unbind", "detach"),
    *("empty", "new_empty", "zeros", "ones", "arange", "full", "to_copy", "copy_", "clone", "cat", "repeat", "index"),
)


class Operations(TorchDispatchMode):
    """Counts what computes: an operation for each element of the largest tensor that a call reads or writes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.name().partition("::")[2].partition(".")[0].removeprefix("_")
        if not name.startswith(FREE):
            tensors = [each for each in tree_leaves((args, result)) if isinstance(each, Tensor)]
            self.count += max((each.numel() for each in tensors), default=0)
        return result


def operations(work: Callable[[], object]) -> int:
    with Operations() as counter:
        work()
    return int(counter.count)
