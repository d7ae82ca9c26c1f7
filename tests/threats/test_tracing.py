"""What tracing makes of single operations: the footprint where NaN goes, or a refusal that names the operation."""

import re
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from bagcert.errors import UsageError
from bagcert.threats import Footprint
from bagcert.threats.operations import HANDLERS
from bagcert.threats.probe import reached_outputs
from bagcert.threats.seen import Seen
from bagcert.threats.traced_network import Weight
from bagcert.threats.tracing import follow, layer_name, trace, trace_footprint
from bagcert.threats.ways_out import EVALUATE, REPLACE, WAYS_OUT
from tests.threats.test_footprint import patch_pixels, rectangles

SIZE = (7, 7)  # square, so that rows and columns can be mistaken for each other


def stopped(operation: str) -> str:
    """What else may be said about an operation at which torch.export itself stops in some of its versions."""
    return "|The network cannot be traced by torch.export" if operation in ("cond", "_add_batch_dim") else ""


class Op(nn.Module):
    """A network made of one function, with a constant of any shape at hand."""

    def __init__(self, function: Callable[..., object], *constant: int) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("constant", torch.ones(constant) if constant else None)

    def forward(self, images: Tensor) -> object:
        return self.function(images) if self.constant is None else self.function(images, self.constant)


class Same(nn.Module):
    def __init__(self, kernel: tuple[int, int], dilation: tuple[int, int], padding: str) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, kernel, dilation=dilation, padding=padding)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images)
        return scores


ACCEPTED: dict[str, nn.Module] = {
    "zeros like the images": Op(lambda x: x + torch.zeros_like(x)),
    "ones like the images": Op(lambda x: x + torch.ones_like(x)),
    "halves like the images": Op(lambda x: x + torch.full_like(x, 0.5)),
    "zeros of the images' type": Op(lambda x: x + x.new_zeros(7)),
    "ones of the images' type": Op(lambda x: x + x.new_ones(7)),
    "halves of the images' type": Op(lambda x: x + x.new_full((7,), 0.5)),
    "written zeros like a weight": Op(lambda x, weight: x + torch.zeros_like(weight).add_(1), 7),
    "a written copy of a weight": Op(lambda x, weight: x + weight.clone().add_(1), 7),
    "written zeros of a weight's type": Op(lambda x, weight: x + weight.new_zeros(7).add_(1), 7),
    "more images than torch takes at once": Op(lambda x: x - x.mean(dim=0) if x.shape[0] > 65_535 else x),
    "halves": Op(lambda x: torch.cat([x, x[:, :1]], dim=1).chunk(2, dim=1)[1]),
    "split from the end": Op(lambda x: x.split(1, dim=-3)[2]),
    "view": Op(lambda x: x.view(x.shape).reshape(x.shape)),
    "channels": Op(lambda x: x[:, 1:]),
    "all images": Op(lambda x: torch.ops.aten.slice(x, 0, 0, sys.maxsize)),
    "all images, unsaid": Op(lambda x: torch.ops.aten.slice(x, 0)),
    "part of a constant": Op(lambda x, constant: x + constant.chunk(2)[1], 2, 3, *SIZE),
    "every other row": Op(lambda x: x[:, :, 1:6:2]),
    "columns": Op(lambda x: x[..., 2:4]),
    "rows where they come second": Op(lambda x: x.permute(0, 2, 3, 1)[:, 1:5:2].permute(0, 3, 1, 2)),
    "columns where they come third": Op(lambda x: x.permute(0, -2, -1, 1)[:, :, 3:].permute(0, 3, 1, 2)),
    "columns reversed": Op(lambda x: x.flip(-1)),
    "rows reversed after a kernel": nn.Sequential(nn.Conv2d(3, 2, (3, 2)), Op(lambda x: x.flip(2))),
    "rows and channels reversed": Op(lambda x: x.flip(1, 2)),
    "rows reversed where they come second": Op(lambda x: x.permute(0, 2, 3, 1).flip(1).permute(0, 3, 1, 2)),
    "the image and its mirror image": Op(lambda x: x + x.flip(-1)),
    "a mirror image turned back": Op(lambda x: x + F.max_pool2d(x.flip(-1), 3, stride=1, padding=1).flip(-1)),
    "concatenated from the end": Op(lambda x: torch.cat([x, x[:, :1]], dim=-3)),
    "beside a constant": Op(lambda x, constant: torch.cat([constant.expand(x.shape[0], 1, *SIZE), x], dim=1), *SIZE),
    "plus a constant": Op(lambda x, constant: x.permute(0, 2, 3, 1).add(constant).permute(0, 3, 1, 2), 3),
    "in place": Op(lambda x: (x + 1).relu_()),
    "the larger of two": Op(lambda x: torch.maximum(F.softplus(x), x.floor())),
    "one of two": Op(lambda x: torch.where(x > 0, x, -x)),
    "softmax from the end": Op(lambda x: x.softmax(dim=-3)),
    "sum over channels": Op(lambda x: x.sum(dim=(1,), keepdim=True)),
    "padded": Op(lambda x: torch.constant_pad_nd(x, [1, 2, 0, 1])),
    "dilated pool": Op(lambda x: F.max_pool2d(x, (2, 3), stride=1, dilation=(3, 2))),
    "pool of its own stride": Op(lambda x: F.avg_pool2d(x, (3, 2))),
    "same": Same((3, 5), (2, 1), "same"),
    "same, even span": Same((2, 4), (2, 2), "same"),
    "valid": Same((3, 2), (1, 2), "valid"),
    "double": nn.Conv2d(3, 2, 3, padding=1).double(),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_footprint_is_where_nan_goes(name: str) -> None:
    network = ACCEPTED[name].eval()
    threat = rectangles("1x2,1x1", SIZE)
    regions = trace_footprint(network, SIZE, 3).regions(threat)
    assert torch.equal(reached_outputs(network, patch_pixels(threat), 3), regions.masks())


def written_under_a_view(x: Tensor, constant: Tensor) -> Tensor:
    """What is returned was read before the tensor below it was widened, by an argument named `out`."""
    below = x * 2
    part = below[:, :2]
    torch.add(x, F.conv2d(x, constant, padding=1), out=below)
    return part


def written_into_a_part(x: Tensor, constant: Tensor) -> Tensor:
    doubled = torch.cat([x, x], dim=1)
    part = doubled.chunk(2, dim=1)[0]
    part.add_(F.conv2d(x, constant, padding=1))
    return doubled


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "rows and columns swapped": (Op(lambda x: x + x.transpose(2, 3)), "add"),
    "one row for all": (Op(lambda x: x + x[:, :, :1]), "add"),
    "one row spread by a constant": (Op(lambda x, constant: x[:, :, :1] + constant, 7, 1), "add"),
    "an axis gained from a constant": (Op(lambda x, constant: x[:, :, :3, :3] + constant, 2, 1, 1, 1, 1), "add"),
    "softmax over rows": (Op(lambda x: x.softmax(dim=2)), "softmax"),
    "softmax over rows that moved up": (Op(lambda x: x.amax(dim=1).softmax(dim=1)), "softmax"),
    "softmax over columns that moved up": (Op(lambda x: x.amax(dim=1).softmax(dim=-1)), "softmax"),
    "sum over everything": (Op(lambda x: x * x.sum()), "sum"),
    "sum over no axis named": (Op(lambda x: x * x.sum(dim=[])), "sum"),
    "images beside each other": (Op(lambda x: torch.cat([x, x], dim=0)), "cat"),
    "images beside each other, from the end": (Op(lambda x: torch.cat([x, x], dim=-4)), "cat"),
    "rows beside each other": (Op(lambda x: torch.cat([x, x], dim=2)), "cat"),
    "columns beside each other": (Op(lambda x: torch.cat([x, x], dim=-1)), "cat"),
    "rows split": (Op(lambda x: x.chunk(2, dim=2)[0]), "chunk"),
    "columns split": (Op(lambda x: x.split(3, dim=-1)[0]), "split"),
    "one image": (Op(lambda x: x[:1]), "slice"),
    "images in reverse": (Op(lambda x: x.flip(0)), "flip"),
    "images and columns in reverse": (Op(lambda x: x.flip(3, -4)), "flip"),
    "rows into channels": (Op(lambda x: x.reshape(x.shape[0], 21, 1, 7)), "reshape|view"),
    "padded unevenly in rows": (Same((2, 3), (1, 1), "same"), "conv2d"),
    "padded unevenly in columns": (Same((3, 2), (1, 1), "same"), "conv2d"),
    "slid over columns first": (nn.Sequential(Op(lambda x: x.transpose(2, 3)), nn.Conv2d(3, 2, 3)), "conv2d"),
    "batch norm of columns": (nn.Sequential(Op(lambda x: x.transpose(1, 3)), nn.BatchNorm2d(7)), "batch_norm"),
    "padded columns only": (Op(lambda x: F.pad(x, (1, 1))), "pad"),
    "its own kernel": (Op(lambda x: F.conv2d(x, x, padding=3)), "conv2d"),
    "a function for each image": (Op(lambda x: x + torch.vmap(torch.mean)(x)[:, None, None, None]), "_add_batch_dim"),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("name", REFUSED)
def test_what_mixes_positions_is_refused(name: str) -> None:
    network, operation = REFUSED[name]
    words = (
        rf"^Layers must keep positions apart, but ({operation}) in layer '(the network itself|0|1|layer)' mixes them, "
        rf"or may do so\. ({'|'.join(re.escape(way) for way in {*WAYS_OUT.values(), EVALUATE, REPLACE})})$"
    )
    with pytest.raises(UsageError, match=words + stopped(operation)):
        trace_footprint(network.eval(), SIZE, 3)


def brightened(x: Tensor) -> Tensor:
    """Decides by the whole image; NaN compares as false, so that no probe with NaN would notice."""
    with torch.no_grad():
        dark = x.mean(dim=(1, 2, 3), keepdim=True) < 0.2
    return torch.where(dark, 4 * x, x)


def brightened_in_full_precision(x: Tensor) -> Tensor:
    with torch.autocast("cpu", enabled=False):
        dark = x.mean(dim=(1, 2, 3), keepdim=True) < 0.2
    return torch.where(dark, 4 * x, x)


def brightened_on_a_condition(x: Tensor, constant: Tensor) -> Tensor:
    def mean(images: Tensor) -> Tensor:
        return images.mean(dim=(1, 2, 3), keepdim=True)

    brighter: Tensor = torch.cond(constant > 0, mean, lambda images: mean(2 * images), (x,))
    return x + brighter


def noise_without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        noise = torch.rand(7)
    return x + noise


@pytest.mark.parametrize(
    ("network", "operation"),
    [
        (Op(brightened), "wrap_with_set_grad_enabled"),
        (Op(brightened_in_full_precision), "wrap_with_autocast"),
        (Op(brightened_on_a_condition, 1), "cond"),
        (Op(noise_without_gradients), "wrap_with_set_grad_enabled"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_blocks_of_their_own_are_refused(network: nn.Module, operation: str) -> None:
    """What torch.export keeps as a program within the program could hide anything."""
    words = f"but {operation} in layer 'the network itself' is a block of its own, such as torch.no_grad"
    with pytest.raises(UsageError, match=words + stopped(operation)):
        trace_footprint(network.eval(), SIZE, 3)


@pytest.mark.parametrize(
    ("network", "operation"),
    [
        (Op(lambda x: x + torch.rand_like(x)), "rand_like"),
        (Op(lambda x: x + torch.rand(7)), "rand"),
        (Op(lambda x: x * (x.bernoulli(0.5))), "bernoulli"),
    ],
    ids=["like the images", "of its own", "instead of them"],
)
def test_noise_is_refused(network: nn.Module, operation: str) -> None:
    with pytest.raises(UsageError) as error:
        trace_footprint(network, SIZE, 3)
    assert str(error.value) == (
        f"Layers must keep positions apart, but {operation} in layer 'the network itself' changes its result from call "
        "to call. Remove it, or replace it by convolutions and channel-wise operations."
    )


WRITING: dict[str, nn.Module] = {
    "written under a view": Op(written_under_a_view, 3, 3, 3, 3),
    "written into a part": Op(written_into_a_part, 3, 3, 3, 3),
}


@pytest.mark.parametrize("name", WRITING)
def test_writes_that_let_a_tensor_see_more_are_refused(name: str) -> None:
    words = "but add in layer 'the network itself' writes into a tensor that then sees more, or into the image or"
    with pytest.raises(UsageError, match=words):
        trace_footprint(WRITING[name].eval(), SIZE, 3)


COUNTING: dict[str, nn.Module] = {
    "rows taken for images": Op(lambda x: x[:, :2, :2, :2].permute(0, 2, 3, 1) + x[:, 0:1, :2, :2].sum(dim=1)),
    "two images at a time": Op(lambda x: x.reshape(2, 21, 1, 7)),
    "a kernel made from the images": Op(lambda x: F.conv2d(x[:, :2], x[:, :2].permute(1, 0, 2, 3))),
    "more than two images": Op(lambda x: x - x.mean(dim=0) if x.shape[0] > 2 else x),
}


@pytest.mark.parametrize("name", COUNTING)
def test_networks_that_count_the_images_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as error:
        trace_footprint(COUNTING[name].eval(), SIZE, 3)
    assert str(error.value) == (
        "A network must treat any number of images alike, but this one fixes or counts them. "
        "Use images.shape[0], not len(images), and nothing across images."
    )


def test_the_innermost_layer_is_named() -> None:
    inner = nn.Sequential(nn.ReLU(), nn.Sequential(nn.ReLU(), Op(lambda x: x.roll(1, dims=2))))
    with pytest.raises(UsageError, match=r"but roll in layer '1\.1' mixes"):
        trace_footprint(inner, SIZE, 3)
    with pytest.raises(UsageError, match="but roll in layer 'the network itself' mixes"):
        trace_footprint(Op(lambda x: x.roll(1, dims=2)), SIZE, 3)
    assert layer_name(fx.Graph().placeholder("images")) == "the network itself"


@pytest.mark.parametrize(
    ("network", "found"),
    [
        (Op(lambda x: x.amax(dim=1)), r"1 with shape \[images, 7, 7\]"),
        (Op(lambda x: x.amax(dim=1) + 1), r"1 with shape \[images, 7, 7\]"),
        (Op(lambda x: x.transpose(2, 3)), r"1 with shape \[images, 3, 7, 7\]"),
        (Op(lambda x: x.permute(0, 2, 3, 1)), r"1 with shape \[images, 7, 7, 3\]"),
        (Op(lambda x, constant: constant + 1, 2, 3, *SIZE), r"1 with shape \[2, 3, 7, 7\]"),
        (Op(lambda x: (x, x)), r"2 with shape \[images, 3, 7, 7\]"),
        (Op(lambda x: 3), r"0 with shape \[\]"),
    ],
    ids=["flat", "flat plus one", "swapped", "channels last", "constant", "two", "none"],
)
def test_the_output_must_be_a_score_map(network: nn.Module, found: str) -> None:
    words = rf"^The network must have one output of shape \[images, classes, rows, columns\], but has {found}\. "
    cure = "End it before it pools or flattens" if found.startswith("1") else "Return the score map alone"
    with pytest.raises(UsageError, match=rf"{words}{cure}\.$"):
        trace_footprint(network, SIZE, 3)


def failing(error: Exception) -> Callable[[Tensor], Tensor]:
    def fail(images: Tensor) -> Tensor:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "words"), [(ValueError("  no such\nthing"), "no such"), (ValueError(), "ValueError")], ids=["two", "none"]
)
def test_a_network_that_cannot_run_is_refused_in_one_line(error: Exception, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        trace_footprint(Op(failing(error)), SIZE, 3)
    cure = "Give image_size and channels as it takes them."
    assert str(refused.value) == f"The network fails on [2, 3, 7, 7] ({words}). {cure}"


def test_branches_on_pixel_values_are_refused_in_one_line() -> None:
    with pytest.raises(UsageError) as refused:
        trace_footprint(Op(lambda x: x if x.sum() > 0 else -x), SIZE, 3)
    words = str(refused.value.__cause__).strip().splitlines()[0]
    assert str(refused.value) == (
        f"The network cannot be traced by torch.export on [2, 3, 7, 7] ({words}). "
        "Remove branches that depend on pixel values."
    )


@pytest.mark.parametrize("name", ["linear", "conv2d"])
def test_weights_made_from_the_images_are_refused(name: str) -> None:
    seen = Seen(Footprint.identity(SIZE))
    graph = fx.Graph()
    node = graph.call_function(getattr(torch.ops.aten, name).default, (graph.placeholder("x"), graph.placeholder("w")))
    node.args[1].meta["val"] = torch.ones(3, 3, 1, 1)  # type: ignore[union-attr]
    assert HANDLERS[name](node, [seen, seen]) is None


@pytest.mark.parametrize("name", ["conv1d", "conv2d", "linear", "batch_norm", "layer_norm"])
def test_a_constant_with_weights_made_from_the_images_is_refused(name: str) -> None:
    graph = fx.Graph()
    constant, images = graph.placeholder("constant"), graph.placeholder("images")
    others: dict[str, tuple[object, ...]] = {
        "conv1d": (images, None, [1], [0]),
        "conv2d": (images,),
        "linear": (images,),
        "batch_norm": (images, None, None, None, False, 0.1, 1e-5, False),
        "layer_norm": ([3], images),
    }
    node = graph.call_function(getattr(torch.ops.aten, name).default, (constant, *others[name]))  # type: ignore[arg-type]
    flat = name == "conv1d"  # of positions in one axis
    images.meta["val"] = torch.ones(3, 3, 1) if flat else torch.ones(3, 3, 1, 1)
    node.meta["val"] = torch.ones(2, 3, 7, 7, 3)
    seen = {images: Seen(Footprint.identity(SIZE), (0, 2, 2), 3) if flat else Seen(Footprint.identity(SIZE))}
    assert HANDLERS[name](node, list(seen.values())) is not None  # it does not look where its sources stand
    with pytest.raises(UsageError, match=f"but {name} in layer 'the network itself' mixes them, or may do so"):
        follow(node, seen)


@pytest.mark.parametrize("device", ["meta", *(["cuda"] if torch.cuda.is_available() else [])])
def test_a_network_on_another_device_is_traced_there(device: str) -> None:
    """`meta` is one that every machine has. On a GPU torch runs very many images by another kernel than a few."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 1)).eval()
    here = trace_footprint(network, (9, 8), 3)
    assert trace_footprint(network.to(device), (9, 8), 3).receptive_field == here.receptive_field == (3, 3)


@pytest.mark.parametrize(
    ("network", "operation"),
    [
        (Op(lambda x: x + 0 * x.new_empty(7)), "new_empty"),
        (Op(lambda x: x + 0 * torch.empty_like(x)), "empty_like"),
        (Op(lambda x: x + 0 * torch.zeros(1).resize_(7)), "resize"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_memory_that_was_not_written_is_refused(network: nn.Module, operation: str) -> None:
    words = rf"but {operation} in layer 'the network itself' returns what its memory held before: perhaps an earlier"
    with pytest.raises(UsageError, match=words):
        trace_footprint(network, SIZE, 3)


def test_traced_operations_know_their_classes_and_keep_their_constants_to_themselves() -> None:
    traced = trace(Op(lambda x: torch.cat([x, x[:, :2]], dim=1) * torch.tensor([2.0])).eval(), SIZE, 3)
    assert traced.classes == 5
    assert len(list(traced.buffers())) == 1 and not traced.state_dict(), "a constant is no weight to be saved"


def test_a_weight_in_another_form_is_refused() -> None:
    network = nn.Conv2d(3, 2, 3)
    weight = Weight("weight", (network.weight.shape, network.weight.dtype, network.weight.device))
    assert weight.of(network) is network.weight
    network.weight = nn.Parameter(torch.zeros(2, 3, 5, 5, dtype=torch.float64))
    with pytest.raises(UsageError) as error:
        weight.of(network)
    assert str(error.value) == (
        "The tensor 'weight' was traced as torch.float32 [2, 3, 3, 3] on cpu, but is torch.float64 [2, 3, 5, 5] on cpu."
        " Wrap the network again."
    )
