"""What a forward pass changes is seen, wherever a network keeps it; what it leaves alone is no change."""

import copy
import itertools
import random
import threading
from collections import Counter, deque
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.scorers.wrapped import wrap
from bagcert.threats.state import frozen, generators, state, unchanged


class Keeping(nn.Module):
    """A network that changes what it keeps at each pass, and does not look at it: it might, later."""

    def __init__(self, kept: object, change: Callable[["Keeping"], object]) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 2, 3, padding=1)
        self.kept: object = None
        if isinstance(kept, Tensor):
            del self.kept
            self.register_buffer("kept", kept)
        else:
            self.kept = kept
        self.change = change

    def forward(self, images: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            self.change(self)
        scores: Tensor = self.conv(images)
        return scores


CHANGES: dict[str, tuple[object, Callable[..., object]]] = {
    "a buffer": (torch.zeros(()), lambda net: net.kept.add_(1)),
    "a new buffer": (torch.zeros(3), lambda net: setattr(net, "kept", net.kept + 1)),
    "a number": (0, lambda net: setattr(net, "kept", net.kept + 1)),
    "a list": ([], lambda net: net.kept.append(None)),
    "a list in a dictionary": ({"a": [1]}, lambda net: net.kept["a"].append(1)),
    "an image in a list": ([torch.zeros(2)], lambda net: net.kept[0].add_(1)),
    "an object": (SimpleNamespace(calls=0), lambda net: setattr(net.kept, "calls", net.kept.calls + 1)),
    "a set": (set(), lambda net: net.kept.add(len(net.kept))),
    "a counter": (Counter(), lambda net: net.kept.update("a")),
    "a queue": (deque([0.0], maxlen=1), lambda net: net.kept.append(net.kept[0] + 1)),
    "an array": (np.zeros(2), lambda net: net.kept.__iadd__(1)),
    "a network that is not listed": ([nn.Linear(1, 1)], lambda net: net.kept[0].bias.data.add_(1)),
    "a generator of its own": (np.random.default_rng(0), lambda net: net.kept.random()),
}


@pytest.mark.parametrize("name", CHANGES)
def test_whatever_a_forward_pass_changes_is_refused(name: str) -> None:
    with pytest.raises(UsageError) as error:
        wrap(Keeping(*CHANGES[name]).eval(), 6)
    assert str(error.value) == (
        "A forward pass must leave the network as it was, but this one changes 'kept'. "
        "Remove counters, caches and running statistics."
    )


def test_a_weight_of_an_inner_module_is_named() -> None:
    network = Keeping(0, lambda net: net.conv.weight.data.mul_(2)).eval()
    with pytest.raises(UsageError, match=r"but this one changes 'conv\.weight'"):
        wrap(network, 6)


@pytest.mark.parametrize("draw", [lambda _: torch.rand(1), lambda _: random.random(), lambda _: np.random.rand()])
def test_a_network_that_draws_is_refused_and_the_generators_are_put_back(draw: Callable[[object], object]) -> None:
    network = Keeping(0, draw).eval()
    before = generators()
    with pytest.raises(UsageError) as error:
        wrap(network, 6)
    assert str(error.value) == (
        "A network must be free of noise, but this one draws random numbers. Remove what draws them."
    )
    assert generators() == before


class Counted(nn.Module):
    """A counter in the traced operations themselves: after thirty calls each score sees its whole image."""

    calls: Tensor

    def __init__(self, count: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("calls", torch.zeros(2))

    def forward(self, images: Tensor) -> Tensor:
        self.count(self.calls)
        return images * (1 + (self.calls[0] > 30))


@pytest.mark.parametrize(
    "count",
    [
        lambda calls: torch._foreach_add_([calls], 1),
        lambda calls: calls.add_(1),
        lambda calls: calls[0].add_(1),
        lambda calls: calls.detach()[:1].add_(1),
    ],
)
def test_operations_that_write_into_the_network_are_refused(count: Callable[[Tensor], object]) -> None:
    with pytest.raises(
        UsageError, match=r"but (add|_foreach_add) in layer .* changes a weight, a buffer or a constant of the"
    ):
        wrap(Counted(count).eval(), 6)


def test_what_is_left_alone_is_no_change() -> None:
    network = Keeping({"a": [torch.full((2,), torch.nan), {1, 2}, None, float("nan")]}, lambda _: None).eval()
    network.me = [network]  # type: ignore[assignment]
    assert state(network) == state(network)
    assert state(copy.deepcopy(network)).keys() == state(network).keys()
    assert state(network)["me"] == [("met", 0)], "modules are known by their number"
    assert not {"_parameters", "_buffers", "_modules"} & state(network).keys(), "what they hold is listed by name"
    with unchanged(network):
        network(torch.zeros(1, 3, 6, 6))
    wrap(network, 6)


class Uninitialized(nn.Module):
    """Adds a tensor whose memory may hold an earlier image."""

    def forward(self, images: Tensor) -> Tensor:
        return images + 0 * torch.empty(1, 3, 6, 6)


def test_uninitialized_memory_is_refused() -> None:
    with pytest.raises(UsageError, match=r"but empty in layer .* returns what its memory held before"):
        wrap(Uninitialized().eval(), 6)


class Scratch(nn.Module):
    """Writes into tensors of its own only."""

    def forward(self, images: Tensor) -> Tensor:
        scale = torch.tensor(2.0).mul_(3)
        shift = torch.zeros(1)
        shift += 1
        return images * scale + shift


def test_scratch_tensors_may_be_written() -> None:
    assert wrap(Scratch().eval(), 6).footprint.receptive_field == (1, 1)


def test_an_error_inside_is_passed_on() -> None:
    with pytest.raises(ZeroDivisionError), unchanged(nn.Identity()):
        next(itertools.repeat(1)) / 0


class Same:
    def __init__(self, held: object = 1) -> None:
        self.held = held


class Other(Same):
    pass


ONE, TWO = [1], [1]
DIFFERENT: dict[str, tuple[object, object]] = {
    "numbers": (1, 2),
    "types of numbers": (1, 1.0),
    "truth and one": (True, 1),
    "zeros": (0.0, -0.0),
    "nothing and zero": (None, 0),
    "keys": ({"a": 1}, {"b": 1}),
    "keys of several parts": ({(1, "a"): 1}, {(1, "b"): 1}),
    "values": ({"a": 1}, {"a": 2}),
    "which one is met again": ((ONE, TWO, ONE), (ONE, TWO, TWO)),
    "types of objects": (Same(), Other()),
    "functions": (lambda: 1, lambda: 2),
    "tensors": (torch.zeros(2), torch.zeros(1, 2)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_told_apart(name: str) -> None:
    one, other = DIFFERENT[name]
    assert frozen(one, {}) == frozen(one, {})
    assert frozen(one, {}) != frozen(other, {})


def test_plain_values_are_kept_as_they_are_written() -> None:
    values = (None, True, 1, -0.0, float("nan"), 1j, "a", b"a")
    assert [frozen(value, {}) for value in values] == [(type(value), repr(value)) for value in values]


def test_an_object_is_looked_into_even_if_it_cannot_be_pickled() -> None:
    kept = Same([threading.Lock(), 1])
    before = frozen(kept, {})
    assert frozen(kept, {}) == before
    kept.held[1] = 2  # type: ignore[index]
    assert frozen(kept, {}) != before


def test_a_generator_of_torch_is_known_by_what_it_draws_next() -> None:
    draw = torch.Generator().manual_seed(0)
    before = frozen(draw, {})
    assert frozen(draw, {}) == before
    torch.rand(1, generator=draw)
    assert frozen(draw, {}) != before
