"""Networks of others: what tracing accepts, with which footprint, and what it refuses by name."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import bagcert
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Footprint, parse_threat
from bagcert.threats.probe import check_footprint, reached_outputs
from tests.threats.test_footprint import Cross, patch_pixels, rectangles


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding="same")
        self.norm = nn.BatchNorm2d(8)
        self.path = nn.Conv2d(8, 8, 3, padding=2, dilation=2)
        self.down = nn.Conv2d(16, 8, 2, stride=2, groups=2)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.norm(self.stem((images - 0.5) / 0.25)))
        features = torch.cat([features, F.gelu(self.path(features))], dim=1)
        scores: Tensor = self.head(F.dropout(F.silu(self.down(features)), training=self.training))
        return scores


class ChannelsLast(nn.Module):
    """ConvNeXt's order: linear layers and layer norm over channels, rows and columns in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.LayerNorm(6)
        self.linear = nn.Linear(6, 5)

    def forward(self, images: Tensor) -> Tensor:
        features = self.depthwise(F.pad(images, (1, 0, 2, -1)))[:, :, 1:]
        rows_first = self.linear(self.norm(features.permute(0, 2, 3, 1)))
        scores: Tensor = rows_first.softmax(dim=-1).transpose(2, 3).permute(0, 2, 1, 3)
        return scores - scores.mean(dim=1, keepdim=True)


class Pooled(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return F.avg_pool2d(F.max_pool2d(images, 3, stride=1, padding=1), (2, 1))


class InPlace(nn.Module):
    """Additions into a tensor that sees as much already."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        features = F.relu(self.path(images), inplace=True)
        features += images
        return features.relu_()


@pytest.mark.parametrize(
    "network", [Residual(), ChannelsLast(), Pooled(), Cross(), InPlace()], ids=lambda net: type(net).__name__
)
def test_traced_footprints_are_where_nan_goes(network: nn.Module) -> None:
    channels = 1 if isinstance(network, Cross) else 3
    scorer = wrap(network.eval(), (10, 8), channels=channels)
    threat = rectangles("2x3,1x1", (10, 8))
    assert torch.equal(
        reached_outputs(network, patch_pixels(threat), channels), scorer.footprint.regions(threat).masks()
    )


def mixing(layer: nn.Module) -> nn.Module:
    """A network whose second layer is the given one."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), layer, nn.Conv2d(8, 4, 1)).eval()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, features: Tensor) -> Tensor:
        tokens = features.flatten(2).transpose(1, 2)
        mixed: Tensor = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return mixed.transpose(1, 2).reshape(features.shape)


class SqueezeExcite(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features * features.mean(dim=(2, 3), keepdim=True).sigmoid()


class Roll(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.roll(1, dims=2)


class BatchSoftmax(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features.softmax(dim=0)


class SelfKernel(nn.Module):
    """A convolution whose kernel is made from the image."""

    def forward(self, features: Tensor) -> Tensor:
        return F.conv2d(features, features[:1, :, :3, :3].permute(1, 0, 2, 3), groups=8, padding=1)


class ShiftInto(nn.Module):
    """Adds a shifted copy through a view: the tensor that is returned was never named in the addition."""

    def forward(self, features: Tensor) -> Tensor:
        doubled = features * 2
        lower = doubled[:, :, 1:]
        lower.add_(features[:, :, :-1])
        return doubled


class Widen(nn.Module):
    """Widens a tensor in place, through the dropout of evaluation mode, which hands out the tensor itself."""

    def __init__(self) -> None:
        super().__init__()
        self.path = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        kept = features * 2
        F.dropout(kept, training=self.training).add_(self.path(features))
        return kept


class WriteImage(nn.Module):
    """Halves the caller's image."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mul_(0.5)


class Noise(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features + torch.randn(1, 8, 1, 1)


class FirstTwo(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return features[:2] + features[-2:]


class ImageKernel(nn.Module):
    """The image as the kernel of a convolution over a constant."""

    def forward(self, features: Tensor) -> Tensor:
        constant = torch.ones(1, 1, 11, 11)
        return F.conv2d(constant, features[:, :1]).transpose(0, 1).expand(features.shape)


class WriteConstant(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        blank = torch.zeros(features.shape)
        blank.add_(features)
        return features + blank


@pytest.mark.parametrize(
    ("layer", "operation"),
    [
        (Attention(), "MultiheadAttention"),
        (nn.GroupNorm(2, 8), "group_norm"),
        (nn.InstanceNorm2d(8), "instance_norm"),
        (nn.LayerNorm([8, 6, 6]), "layer_norm"),
        (nn.AdaptiveAvgPool2d(1), "adaptive_avg_pool2d"),
        (nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"), "pad"),
        (nn.Conv2d(8, 8, 3, padding=1, padding_mode="circular"), "pad"),
        (nn.MaxPool2d(4, ceil_mode=True), "max_pool2d"),
        (nn.Upsample(scale_factor=2, mode="bilinear"), "upsample_bilinear2d"),
        (nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(32, 8, 1)), "pixel_unshuffle"),
        (SqueezeExcite(), "mean"),
        (Roll(), "roll"),
        (BatchSoftmax(), "softmax"),
        (SelfKernel(), "slice|permute|conv2d"),
        (nn.Linear(6, 6), "linear"),
        (ShiftInto(), "add"),
        (WriteConstant(), "add"),
        (Widen(), "add"),
        (Noise(), "randn"),
        (FirstTwo(), "slice|add"),
        (ImageKernel(), "conv2d|expand|transpose|slice"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_layers_that_mix_positions_are_refused_by_name(layer: nn.Module, operation: str) -> None:
    with pytest.raises(UsageError, match=rf"Layers must keep positions apart, but ({operation}) in layer '1"):
        wrap(mixing(layer), 6)


def test_a_network_that_writes_into_the_image_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"but mul in layer .* writes into a tensor that then sees more, or into the image"
    ):
        wrap(WriteImage(), 6)


@torch.library.custom_op("relu::spread", mutates_args=())
def spread(features: Tensor) -> Tensor:
    """An operation of another library, named like one of ours."""
    return features.roll(1, dims=2).clone()


@spread.register_fake
def _(features: Tensor) -> Tensor:
    return torch.empty_like(features)


class Foreign(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = spread(features)
        return result


def test_operations_of_other_libraries_are_refused() -> None:
    with pytest.raises(UsageError, match="Layers must keep positions apart, but relu"):
        wrap(mixing(Foreign()), 6)


class Counting(nn.Module):
    """Looks at how many images there are."""

    def forward(self, images: Tensor) -> Tensor:
        return images - images.mean(dim=0) if len(images) > 2 else images


class Remembering(nn.Module):
    """Mixes in what it saw before."""

    def __init__(self) -> None:
        super().__init__()
        self.last: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        before = self.last[-1] if self.last and not torch.compiler.is_compiling() else torch.zeros(())
        self.last.append(images.mean().detach())
        return images + before


def test_networks_that_are_no_function_of_the_image_are_refused() -> None:
    with pytest.raises(UsageError, match="A network must treat any number of images alike"):
        wrap(Counting(), 6)
    with pytest.raises(UsageError, match=r"The network (cannot be traced by torch\.export|fails) on "):
        wrap(Remembering(), 6)


def test_the_check_sees_what_nan_does_not() -> None:
    """A comparison swallows NaN; another pixel value shows the leak."""
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), Threshold()).eval()
    torch.manual_seed(0)
    with pytest.raises(UsageError, match=r"Pixel \(\d+, \d+\) must reach its footprint only, but changes output \("):
        check_footprint(network, Footprint.identity((6, 6)), 3)


class Threshold(nn.Module):
    def forward(self, features: Tensor) -> Tensor:
        return (features > features.nanmean()).double()


def test_the_modes_of_inner_modules_count() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)).eval()
    scorer = wrap(network, 6)
    network.train()
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        scorer.scores(torch.rand(2, 3, 6, 6))


def test_batch_norm_in_training_mode_is_refused_by_name() -> None:
    network = mixing(nn.BatchNorm2d(8))
    wrap(network, 6)
    network[1].train()  # type: ignore[index]
    with pytest.raises(UsageError, match="Layers must keep positions apart, but batch_norm in layer '1'"):
        wrap(network, 6)


def test_dropout_in_training_mode_is_refused() -> None:
    network = mixing(nn.Dropout(0.5))
    network[1].train()  # type: ignore[index]
    with pytest.raises(UsageError, match="but dropout in layer '1'"):
        wrap(network, 6)


class Flat(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.amax(dim=1)


class Twice(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images, images + 1


class Moody(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images if images.sum() > 0 else -images


def test_networks_without_a_score_map_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"must have one output of shape \[images, classes, rows, columns\], but has 1 with"
    ):
        wrap(Flat(), 4)
    with pytest.raises(UsageError, match="but has 2 with shape"):
        wrap(Twice(), 4)
    with pytest.raises(UsageError, match=r"The network cannot be traced by torch\.export"):
        wrap(Moody(), 4)
    with pytest.raises(
        UsageError, match=r"Image size and channels must be whole numbers of at least 1, but are \(0, 4\) and 3"
    ):
        wrap(Flat(), (0, 4))


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (nn.Conv2d(3, 2, 3, device="meta"), "0.weight"),
        (nn.LazyConv2d(2, 3), "0.weight"),
        (nn.BatchNorm2d(3, affine=False, device="meta"), "0.running_mean"),
    ],
)
@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_a_network_whose_weights_have_no_values_is_refused(layer: nn.Module, name: str) -> None:
    with pytest.raises(UsageError, match=f"The network has no values for '{name}' yet"):
        wrap(nn.Sequential(layer).eval(), 6)


def test_images_larger_than_any_memory_are_refused() -> None:
    words = (
        r"Images of 3x1000000000x1000000000 do not fit into memory\. Give image_size and channels as the network takes"
    )
    with pytest.raises(UsageError, match=rf"^{words} them\.$"):
        wrap(nn.Conv2d(3, 2, 3).eval(), 10**9)


def test_scores_go_straight_into_a_certificate() -> None:
    torch.manual_seed(0)
    scorer = wrap(Residual().eval(), 12)
    images = torch.rand(5, 3, 12, 12)
    certificate = bagcert.certify_scores(scorer.scores(images), "1x1", footprint=scorer.footprint, bounds=None)
    assert certificate.predicted.shape == (5,)
    regions = scorer.footprint.regions(parse_threat("1x1", (12, 12)))
    attacked = images.clone()
    attacked[:, :, 4, 7] = 1 - attacked[:, :, 4, 7]
    moved = (scorer.scores(images) != scorer.scores(attacked)).any(dim=1)
    assert not bool((moved & ~regions.masks()[4 * 12 + 7]).any())
    assert bool(moved.any())


def test_a_network_in_training_mode_does_not_score() -> None:
    scorer = wrap(nn.Conv2d(3, 4, 3, padding=1), 6)
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        scorer.scores(torch.rand(1, 3, 6, 6))


def test_images_take_the_type_of_the_weights_that_have_one() -> None:
    class Counted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.times = nn.Parameter(torch.ones(1, dtype=torch.int8), requires_grad=False)
            self.conv = nn.Conv2d(1, 2, 3, padding=1)

        def forward(self, images: Tensor) -> Tensor:
            return self.conv(images) * self.times  # type: ignore[no-any-return]

    torch.manual_seed(0)
    defense = Defense.build(wrap(Counted().eval(), 8, channels=1), "two-mask", "2x2", ("a", "b"))
    images = torch.rand(3, 1, 8, 8)
    assert torch.equal(defense.scores(images).values, defense.scores(images.double()).values)
