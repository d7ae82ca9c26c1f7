"""Linear layers per position, in the forms in which people write them: accepted if nothing else is seen."""

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.errors import UsageError
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Footprint
from bagcert.threats.per_position import reshaped
from bagcert.threats.probe import reached_outputs
from bagcert.threats.seen import Seen
from bagcert.threats.tracing import trace_footprint
from bagcert.threats.ways_out import CHANNELS, CLASSIFY, COVER, EVALUATE, NORMALIZE, REPLACE, SHAPE
from tests.threats.test_footprint import patch_pixels, rectangles

SIZE = (6, 4)
Form = Callable[["Head", Any], Any]


class Head(nn.Module):
    """A 3x3 convolution, and then whatever the form makes of its features."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.linear, self.narrow, self.across = nn.Linear(5, 2), nn.Conv1d(5, 2, 1), nn.Linear(24, 24)
        self.wide = nn.Conv1d(5, 2, 3, padding=1)
        self.weight, self.maps = nn.Parameter(torch.rand(2, 5)), nn.Parameter(torch.rand(2, 5, *SIZE))
        self.attention = nn.MultiheadAttention(5, 1, batch_first=True)
        self.form = form

    def forward(self, images: Tensor) -> Any:
        return self.form(self, self.stem(images))


ACCEPTED: dict[str, Form] = {
    "channels last and back": lambda net, x: net.linear(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2),
    "moved": lambda net, x: net.linear(x.movedim(1, -1)).movedim(-1, 1),
    "several moved": lambda net, x: net.linear(x.movedim((2, 3), (1, 2))).movedim((1, 2), (2, 3)),
    "flat": lambda net, x: net.linear(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, SIZE),
    "flat by view": lambda net, x: net.linear(x.view(x.shape[0], 5, -1).mT).mT.reshape(-1, 2, *SIZE),
    "flat, channels last": lambda net, x: (
        net.linear(x.permute(0, 2, 3, 1).flatten(1, 2)).unflatten(1, SIZE).permute(0, 3, 1, 2)
    ),
    "flat with a softmax over channels": lambda net, x: x.flatten(2).softmax(dim=1).unflatten(2, SIZE),
    "flat, added up": lambda net, x: (x.flatten(2) + x.relu().flatten(2)).unflatten(-1, SIZE),
    "einsum": lambda net, x: torch.einsum("bchw,kc->bkhw", x, net.weight),
    "einsum of all other axes": lambda net, x: torch.einsum("kc, bc... -> bk...", net.weight, x),
    "einsum to channels last": lambda net, x: torch.einsum("bchw,kc->bhwk", x, net.weight).permute(0, 3, 1, 2),
    "einsum of flat positions": lambda net, x: torch.einsum("bcp,kc->bkp", x.flatten(2), net.weight).reshape(
        -1, 2, *SIZE
    ),
    "einsum of all other axes to channels last": lambda net, x: torch.einsum("bc...,kc->b...k", x, net.weight).permute(
        0, 3, 1, 2
    ),
    "einsum of flat positions to channels last": lambda net, x: torch.einsum(
        "bcp,kc->bpk", x.flatten(2), net.weight
    ).mT.reshape(-1, 2, *SIZE),
    "matrix on the right": lambda net, x: (x.permute(0, 2, 3, 1) @ net.weight.T).permute(0, 3, 1, 2),
    "matrix on the left": lambda net, x: (net.weight @ x.flatten(2)).unflatten(2, SIZE),
    "convolution of one": lambda net, x: net.narrow(x.flatten(2)).unflatten(2, SIZE),
    "convolution of one, padded by name": lambda net, x: F.conv1d(
        F.conv1d(x.flatten(2), net.weight[:, :, None], padding="same"), net.weight[:, :2, None], padding="valid"
    ).reshape(-1, 2, *SIZE),
    "groups of channels": lambda net, x: x[:, :4].reshape(-1, 2, 2, *SIZE).transpose(1, 2).reshape(-1, 4, *SIZE),
    "flat groups of channels": lambda net, x: (
        x[:, :4].flatten(2).reshape(-1, 2, 2, 24).transpose(1, 2).reshape(-1, 4, 24).unflatten(2, SIZE)
    ),
    "an axis more and less": lambda net, x: x.unsqueeze(-1).amax(dim=-1),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_form_sees_what_its_features_see(name: str) -> None:
    """Where a NaN goes is the oracle: exactly the traced footprint, which is that of the convolution below."""
    network = Head(ACCEPTED[name]).eval()
    footprint = trace_footprint(network, SIZE, 3)
    threat = rectangles("1x2,1x1", SIZE)
    assert torch.equal(reached_outputs(network, patch_pixels(threat), 3), footprint.regions(threat).masks())
    assert footprint.receptive_field == (3, 3)
    images = torch.rand(3, 3, *SIZE)
    assert torch.equal(wrap(network, SIZE).logits(images), network(images))


def many(features: Tensor) -> Tensor:
    """As many channels as positions, all of these in one axis: a matrix fits on either side."""
    return torch.cat([features] * 5, dim=1)[:, :24].flatten(2)


REFUSED: dict[str, tuple[Form, str]] = {
    "flat positions as channels": (lambda net, x: net.across(x.flatten(2)).unflatten(2, SIZE), "linear"),
    "positions of another order": (lambda net, x: x.flatten(2).unflatten(2, (SIZE[1], SIZE[0])), "unflatten"),
    "another order by view": (lambda net, x: x.reshape(-1, 5, SIZE[1], SIZE[0]), "reshape"),
    "channels last read as first": (lambda net, x: x.flatten(2).mT.reshape(-1, 5, *SIZE), "reshape"),
    "channels between": (lambda net, x: x.permute(0, 2, 3, 1).reshape(-1, 5, *SIZE), "reshape"),
    "channels between rows and columns": (lambda net, x: x.transpose(1, 2).reshape(-1, 5, 24), "reshape"),
    "rows with channels": (lambda net, x: x.flatten(1, 2), "flatten"),
    "images with channels": (lambda net, x: x.flatten(0, 1), "flatten"),
    "a part of the positions": (lambda net, x: x.flatten(2)[:, :, 1:].softmax(dim=1), "slice"),
    "positions in reverse": (lambda net, x: (x.flatten(2) + x.flatten(2).flip(2)).unflatten(2, SIZE), "flip"),
    "softmax over positions": (lambda net, x: x.flatten(2).softmax(dim=2).unflatten(2, SIZE), "softmax"),
    "positions beside each other": (lambda net, x: torch.cat([x.flatten(2)] * 2, dim=2), "cat"),
    "positions against channels": (lambda net, x: x[:, :4, :1].flatten(2) + x[:, :4, :1].flatten(2).mT, "add"),
    "einsum over rows": (lambda net, x: torch.einsum("bchw,kc->bkw", x, net.weight)[:, :, None], "einsum"),
    "einsum of a diagonal": (lambda net, x: torch.einsum("bchh,kc->bkh", x[:, :, :4], net.weight), "einsum"),
    "einsum with itself": (lambda net, x: torch.einsum("bchw,bcij->bhwij", x, x), "einsum"),
    "einsum with maps": (lambda net, x: torch.einsum("bchw,kchw->bk", x, net.maps), "einsum"),
    "einsum spreads a row": (lambda net, x: torch.einsum("bchw,kch->bkhw", x[:, :, :1], net.maps[..., 0]), "einsum"),
    "einsum without a result": (lambda net, x: torch.einsum("bchw,kc", x, net.weight), "einsum"),
    "einsum with more axes": (lambda net, x: torch.einsum("bchw,kc...->bkhw...", x, net.maps[..., 0]), "einsum"),
    "matrix of columns": (lambda net, x: x @ net.maps[0, 0, :4], "matmul"),
    "matrix of rows": (lambda net, x: net.maps[0, :, :, 0] @ x, "matmul"),
    "matrices of rows": (lambda net, x: net.maps[:1, :, :, :1].mT @ x, "matmul"),
    "matrix made of the image": (lambda net, x: x.flatten(2).mT @ x.flatten(2), "matmul"),
    "matrix made of the image, on the right": (lambda net, x: many(x).mT @ many(x).amax(dim=1).mT, "matmul"),
    "matrix made of the image, on the left": (lambda net, x: many(x).amax(dim=1) @ many(x), "matmul"),
    "a vector": (lambda net, x: net.weight[0] @ x.flatten(2), "matmul"),
    "matrices that add an axis": (lambda net, x: net.maps[:, None, :, :5, 0].mT @ x.flatten(2), "matmul"),
    "convolution of every other one": (
        lambda net, x: F.conv1d(x.flatten(2), net.weight[:, :, None], stride=2),
        "conv1d",
    ),
    "convolution of one and its border": (
        lambda net, x: F.conv1d(x.flatten(2), net.weight[:, :, None], padding=1),
        "conv1d",
    ),
    "convolution of neighbors, padded by name": (
        lambda net, x: F.conv1d(x.flatten(2), net.maps[:, :, 0, :3], padding="same"),
        "conv1d",
    ),
    "convolution of neighbors": (lambda net, x: net.wide(x.flatten(2)).unflatten(2, SIZE), "conv1d"),
    "an axis more, then padding": (lambda net, x: F.pad(x.unsqueeze(-1), (0, 0, 1, 1)).amax(dim=-1), "pad"),
    "images as rows": (lambda net, x: x.transpose(0, 2).flatten(2), "flatten"),
    "images after rows": (lambda net, x: x.transpose(0, 2).unsqueeze(-1).amax(dim=-1).transpose(0, 2), "unsqueeze"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_form_that_sees_more_is_refused(name: str) -> None:
    form, operation = REFUSED[name]
    with pytest.raises(UsageError, match=f"Layers must keep positions apart, but {operation} in layer"):
        wrap(Head(form).eval(), SIZE)


@pytest.mark.parametrize(
    "form",
    [
        lambda net, x: x.reshape(-1, 10, *SIZE),
        lambda net, x: x.transpose(0, 2).reshape(-1, 5, *SIZE),
    ],
)
def test_a_shape_that_fits_only_some_numbers_of_images_is_refused(form: Form) -> None:
    with pytest.raises(UsageError, match="A network must treat any number of images alike"):
        wrap(Head(form).eval(), SIZE)


@st.composite
def shapes(draw: st.DrawFn) -> tuple[list[int], list[int], bool, list[int]]:
    """Sizes of images, channels, rows and columns; an order of these axes; are the last two one; and a new shape."""
    sizes = [draw(st.integers(1, 4)) for _ in range(4)]
    flat = draw(st.booleans())
    order = [
        axis
        for each in draw(st.permutations([0, 1, 2] if flat else range(4)))
        for axis in ((2, 3) if flat and each == 2 else (each,))
    ]
    given = [factor for axis in order for factor in {4: (2, 2)}.get(sizes[axis], (sizes[axis],))]
    after: list[int] = []
    for factor in draw(st.permutations(given)) if draw(st.booleans()) else given:
        if draw(st.booleans()) and after:  # neighbors become one axis
            after[-1] *= factor
        else:
            after.append(factor)
    return sizes, order, flat, after


@given(shapes())
def test_axes_after_a_change_of_shape_are_the_truth(case: tuple[list[int], list[int], bool, list[int]]) -> None:
    """The oracle: number all images, rows and columns, and see along which axes these numbers lie afterwards."""
    sizes, order, flat, after = case
    grid = (sizes[2], sizes[3])
    before = [sizes[axis] for axis in order]
    batch, rows, columns = (order.index(axis) for axis in (0, 2, 3))
    if flat:
        before[rows : rows + 2] = [grid[0] * grid[1]]
        batch, columns = batch - (batch > rows), rows
    node: Any = SimpleNamespace(
        args=[SimpleNamespace(meta={"val": torch.empty(before)})], meta={"val": torch.empty(after)}
    )
    found = reshaped(node, [Seen(Footprint.identity(grid), (batch, rows, columns), len(before))])
    if found is None:
        return
    assert found.rank == len(after)
    for axis, number in zip(found.axes[: 1 if found.flat else 3], (0, 2, 3), strict=False):
        ids = torch.arange(sizes[number]).reshape([-1 if place == number else 1 for place in range(4)])
        spread = ids.expand(sizes).permute(order).reshape(after)
        along = torch.arange(after[axis]).reshape([-1 if place == axis else 1 for place in range(len(after))])
        assert torch.equal(spread, along.expand(after))
    if found.flat:
        ids = torch.arange(grid[0] * grid[1]).reshape(1, 1, *grid).expand(sizes).permute(order).reshape(after)
        along = torch.arange(after[found.axes[1]])
        along = along.reshape([-1 if place == found.axes[1] else 1 for place in range(len(after))])
        assert torch.equal(ids, along.expand(after))


def test_keeping_the_shape_keeps_the_axes() -> None:
    node: Any = SimpleNamespace(
        args=[SimpleNamespace(meta={"val": torch.empty(2, 3, 4, 5)})], meta={"val": torch.empty(2, 3, 4, 5)}
    )
    found = reshaped(node, [Seen(Footprint.identity((4, 5)))])
    assert found is not None and (found.axes, found.rank) == ((0, 2, 3), 4)


class Pooled(nn.Module):
    """What classifiers usually do."""

    def __init__(self) -> None:
        super().__init__()
        self.features, self.pool, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Linear(8, 2)

    def forward(self, images: Tensor) -> Any:
        return self.head(self.pool(self.features(images)).flatten(1))


class OwnAttention(nn.Module):
    """Attention as people write it themselves, with a layer inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor) -> Tensor:
        positions: Tensor = self.inner(images.flatten(2))
        return positions.softmax(dim=2)


SENTENCES = {  # as users read them
    EVALUATE: "Call network.eval() first.",
    CLASSIFY: "Drop it, and apply the classifier to every position: "
    "scores = classifier(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).",
    COVER: "Cover the whole network by masks instead: bagcert.cover takes any classifier (docs/your-network.md).",
    NORMALIZE: "Use nn.BatchNorm2d, or a norm over channels alone.",
    SHAPE: "Keep rows and columns as axes of their own, or make these two one axis, as in features.flatten(2).",
    CHANNELS: "Apply it to channels alone: move them to the end by features.permute(0, 2, 3, 1), "
    "or use nn.Conv2d(..., 1).",
    REPLACE: "Remove it, or replace it by convolutions and channel-wise operations.",
}


@pytest.mark.parametrize(("said", "words"), SENTENCES.items())
def test_ways_out_are_sentences(said: str, words: str) -> None:
    assert said == words


WAYS: dict[str, tuple[nn.Module, str, str]] = {
    "global pooling": (Pooled(), "adaptive_avg_pool2d in layer 'pool'", CLASSIFY),
    "global mean": (Head(lambda net, x: net.linear(x.mean((2, 3)))), "mean in layer", CLASSIFY),
    "attention": (
        Head(lambda net, x: F.scaled_dot_product_attention(*(x.flatten(2).mT,) * 3)),
        "scaled_dot_product_attention in layer 'the network itself' is attention, which mixes them. ",
        COVER,
    ),
    "attention with dropout": (
        Head(lambda net, x: F.scaled_dot_product_attention(*(x.flatten(2).mT,) * 3, dropout_p=0.5)),
        "changes its result from call to call. ",
        COVER,
    ),
    "multi-head attention": (
        Head(lambda net, x: net.attention(*(x.flatten(2).mT,) * 3)[0]),
        "MultiheadAttention in layer 'attention' is attention, which mixes them. ",
        COVER,
    ),
    "a class token": (Head(lambda net, x: torch.cat([x.flatten(2)] * 2, dim=2)), "cat in layer", COVER[5:]),
    "batch norm in training mode": (nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2)).train(), "'1'", EVALUATE),
    "attention that is the whole network": (OwnAttention(nn.Identity()), "softmax in layer", COVER),
    "a layer inside attention": (nn.Sequential(OwnAttention(nn.Linear(24, 24))), "linear in layer '0.inner'", CHANNELS),
    "dropout of channels in training mode": (
        nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout2d()).train(),
        "feature_dropout in",
        EVALUATE,
    ),
    "dropout in training mode": (nn.Sequential(nn.Conv2d(3, 2, 3), nn.Dropout()).train(), "dropout in", EVALUATE),
    "a norm over positions": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)), "group_norm in", NORMALIZE),
    "everything flat": (Head(lambda net, x: x.flatten(1)), "flatten in layer", SHAPE),
    "linear over columns": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4, 4)), "linear in", CHANNELS),
    "a tuple": (Head(lambda net, x: (x, x)), "but has 2 with shape", "Return the score map alone."),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_refusal_shows_the_way_out(name: str) -> None:
    network, words, way = WAYS[name]
    if "training" not in name:
        network.eval()
    with pytest.raises(UsageError) as refused:
        wrap(network, SIZE)
    assert words in str(refused.value) and str(refused.value).endswith(way) and "\n" not in str(refused.value)


MIXING: dict[str, tuple[Form, str]] = {
    "adaptive_avg_pool2d": (lambda net, x: F.adaptive_avg_pool2d(x, 1), CLASSIFY),
    "adaptive_max_pool2d": (lambda net, x: F.adaptive_max_pool2d(x, 1), CLASSIFY),
    "amax": (lambda net, x: x.amax((2, 3)), CLASSIFY),
    "amin": (lambda net, x: x.amin((2, 3)), CLASSIFY),
    "max": (lambda net, x: x + x.max(), CLASSIFY),
    "mean": (lambda net, x: x.mean((2, 3)), CLASSIFY),
    "sum": (lambda net, x: x.sum((2, 3)), CLASSIFY),
    "baddbmm": (lambda net, x: torch.baddbmm(net.maps[0, 0, 0, 0], x.flatten(2), x.flatten(2).mT), COVER),
    "bmm": (lambda net, x: torch.bmm(x.flatten(2), x.flatten(2).mT), COVER),
    "log_softmax": (lambda net, x: x.log_softmax(2), COVER),
    "softmax": (lambda net, x: x.softmax(2), COVER),
    "group_norm": (lambda net, x: F.group_norm(x, 1), NORMALIZE),
    "instance_norm": (lambda net, x: F.instance_norm(x), NORMALIZE),
    "layer_norm": (lambda net, x: F.layer_norm(x, x.shape[1:]), NORMALIZE),
    "flatten": (lambda net, x: x.flatten(1), SHAPE),
    "reshape|view": (lambda net, x: x.reshape(-1, 5 * 24), SHAPE),
    "unflatten": (lambda net, x: x.unflatten(2, (2, -1)), SHAPE),
    "view": (lambda net, x: x.view(x.shape[0], -1), SHAPE),
    "einsum": (lambda net, x: torch.einsum("bchw,bcvw->bhv", x, x), CHANNELS),
    "linear": (lambda net, x: net.across(x.flatten(2)), CHANNELS),
    "matmul": (lambda net, x: x.flatten(2) @ net.across.weight, CHANNELS),
    "tensordot": (lambda net, x: torch.tensordot(x.flatten(2), net.across.weight, dims=([2], [0])), CHANNELS),
    "cat": (
        lambda net, x: torch.cat([x, x], dim=2),
        "Join channels alone. If this adds a class token: cover the whole network by masks instead: bagcert.cover "
        "takes any classifier (docs/your-network.md).",
    ),
    "pad": (
        lambda net, x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
        "Pad rows and columns with zeros: padding_mode='zeros'.",
    ),
    "roll": (lambda net, x: x.roll(1, 2), REPLACE),
}


@pytest.mark.parametrize("operation", MIXING)
def test_each_operation_that_mixes_positions_has_its_way_out(operation: str) -> None:
    form, way = MIXING[operation]
    with pytest.raises(UsageError) as refused:
        wrap(Head(form).eval(), SIZE)
    assert re.search(rf"but ({operation}) in layer .* mixes them, or may do so\. {re.escape(way)}$", str(refused.value))


def test_the_way_out_of_pooling_works() -> None:
    """A trained classifier of pooled features, applied to every position, gives scores whose mean is its answer."""
    torch.manual_seed(0)
    pooled = Pooled().eval()

    class Everywhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pooled = pooled

        def forward(self, images: Tensor) -> Tensor:
            features = self.pooled.features(images)
            scores: Tensor = self.pooled.head(features.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return scores

    images = torch.rand(4, 3, *SIZE)
    torch.testing.assert_close(wrap(Everywhere(), SIZE).logits(images).mean((2, 3)), pooled(images))
