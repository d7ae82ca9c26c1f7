"""The residual networks of App. A.1, whose kernel table sets the receptive field; shake-shake regularizes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.scorers.base import WIDEST, BuiltScorer, Channels, Classes, NetworkConfig, Normalize, Step, conv_norm
from bagcert.scorers.folding import fold
from bagcert.scorers.footprint_table import layer_table
from bagcert.scorers.steps import score_step
from bagcert.tensors import Images
from bagcert.threats import Footprint, Layer


class _Shake(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, second: Tensor, forth: Tensor, back: Tensor) -> Tensor:
        ctx.save_for_backward(back)
        return forth * first + (1 - forth) * second

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (back,) = ctx.saved_tensors
        return back * grads[0], (1 - back) * grads[0], None, None


def shake(first: Tensor, second: Tensor) -> Tensor:
    """α·first + (1-α)·second, with gradients as for another α; one draw of each for the whole batch (App. A.1.1)."""
    # Drawn on the CPU or GPU from its own generator; same dtype as the paths, so that bf16 stays bf16.
    weights = torch.rand(2, device=first.device, dtype=torch.float32).to(first.dtype)
    mixed: Tensor = _Shake.apply(first, second, weights[0], weights[1])  # type: ignore[no-untyped-call]
    return mixed


# App. A.1.1: the kernel of each block, by receptive field, for CIFAR-10; every stride is 1.
CIFAR_KERNELS = {
    5: (3, 1, 1, 1, 1, 1, 1, 1),
    7: (3, 1, 3, 1, 1, 1, 1, 1),
    9: (3, 1, 3, 1, 3, 1, 1, 1),
    11: (3, 1, 3, 1, 3, 1, 3, 1),
    13: (3, 3, 3, 1, 3, 1, 3, 1),
}

# App. A.1.2: the same for ImageNet, stride 2 in blocks 1 and 3.
IMAGENET_KERNELS = {
    17: (3, 1, 3, 1, 3, 1, 1, 1),
    25: (3, 1, 3, 1, 3, 1, 3, 1),
    29: (3, 3, 3, 1, 3, 1, 3, 1),
}


@dataclass(frozen=True)
class ResidualConfig(NetworkConfig):
    """A 3x3 stem, then one residual block per kernel; the defaults are the CIFAR-10 network of receptive field 7."""

    classes: Classes = 10
    channels: Channels = 3
    width: Annotated[
        int | tuple[int, ...], Key("features of all layers, or of the stem and then of each block", 1, WIDEST)
    ] = 768
    kernels: Annotated[tuple[int, ...], Key("kernel of each block, which sets the receptive field", 1, 99)] = (
        CIFAR_KERNELS[7]
    )
    strides: Annotated[tuple[int, ...], Key("stride of each block; none given: 1 throughout", 1, 99)] = ()
    paths: Annotated[int, Key("residual paths per block, 1 or 2")] = 2
    shake: Annotated[bool, Key("shake-shake between the two paths")] = True
    positions: Annotated[bool, Key("learned features of each position, added to what it sees (not in the paper)")] = (
        False
    )
    position_rank: Annotated[
        int, Key("numbers that a position learns, from which its features are made; 0: one for each", 0, WIDEST)
    ] = 0
    step: Step = "heaviside"

    def __post_init__(self) -> None:
        blocks = len(self.kernels)
        if any(kernel < 1 or kernel % 2 == 0 for kernel in self.kernels) or not blocks:
            raise UsageError(
                f"The value of network.kernels must be odd numbers, one for each block, but is {list(self.kernels)}."
            )
        if self.strides and (len(self.strides) != blocks or min(self.strides) < 1):
            raise UsageError(
                f"The value of network.strides must be {blocks} numbers of at least 1, but is {list(self.strides)}."
            )
        if isinstance(self.width, tuple) and len(self.width) != blocks + 1:
            raise UsageError(
                f"The value of network.width must be {blocks + 1} numbers, or one, but is {list(self.width)}."
            )
        if self.paths not in (1, 2):
            raise UsageError(f"The value of network.paths must be 1 or 2, but is {self.paths}.")
        if self.shake and self.paths == 1:
            raise UsageError("Shake-shake needs network.paths = 2, but it is 1. Set network.shake=false.")
        if min(self.classes - 1, self.channels, *self.block_widths) < 1:
            raise UsageError("The network must have at least 2 classes, 1 channel and width 1, but has fewer.")
        if self.position_rank and not self.positions:
            raise UsageError("The value of network.position_rank needs network.positions = true, but it is false.")
        score_step(self.step)

    @property
    def block_widths(self) -> tuple[int, ...]:
        """The width of the stem, then of each block."""
        return self.width if isinstance(self.width, tuple) else (self.width,) * (len(self.kernels) + 1)

    @property
    def block_strides(self) -> tuple[int, ...]:
        return self.strides or (1,) * len(self.kernels)

    @property
    def complete(self) -> int:
        """The block after which the receptive field and the grid of positions are complete; -1: the stem."""
        shapes = enumerate(zip(self.kernels, self.block_strides, strict=True))
        return max((block for block, shape in shapes if shape != (1, 1)), default=-1)

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "ResidualScorer":
        return ResidualScorer(self, image_size, mean, std)


class ResidualScorer(BuiltScorer):
    """The region scorer of App. A.1: batch norm and ReLU after every convolution except the last.

    ImageNet networks have one path per block. The paper does not say so, but uses no shake-shake there.

    With `positions`, a region also knows where in the image it lies: a learned vector is added at each position. It is
    the same for every image, so a score still depends on no pixel outside its receptive field, and R(l) holds. With
    `position_rank` r it is made from r learned numbers by one matrix for all positions: far fewer weights.
    """

    config: ResidualConfig

    def __init__(
        self,
        config: ResidualConfig,
        image_size: tuple[int, int],
        mean: Sequence[float] = (0.0,),
        std: Sequence[float] = (1.0,),
    ) -> None:
        super().__init__()
        self.config = config
        self.image_size = image_size
        self.step = score_step(config.step)
        widths = config.block_widths
        self.normalize = Normalize(mean, std, config.channels)
        self.stem = nn.Sequential(*conv_norm(config.channels, widths[0], 3, 1), nn.ReLU(inplace=True))
        self.blocks = nn.Sequential(
            *(
                Block(before, after, kernel, stride, config)
                for (before, after), kernel, stride in zip(
                    pairwise(widths), config.kernels, config.block_strides, strict=True
                )
            )
        )
        self.head = nn.Conv2d(widths[-1], config.classes, kernel_size=1)
        # From the numbers that built the layers, so that R(l) cannot drift from the network. The 3x3 convolution of a
        # block is its widest part: shortcut and 1x1 convolutions see the middle of what it sees.
        self.layers = [Layer(kernel=3, stride=1, dilation=1, padding=1)]
        for kernel, stride in zip(config.kernels, config.block_strides, strict=True):
            self.layers.append(Layer(kernel=kernel, stride=stride, dilation=1, padding=kernel // 2))
        self.footprint = Footprint.of_layers(self.layers, image_size=image_size)
        self.complete = config.complete
        self.positions = self.position_matrix = None
        if config.positions:
            features, rank = widths[self.complete + 1], config.position_rank
            self.positions = drawn((rank or features, *self.footprint.grid), std=0.02)
            if rank:
                self.position_matrix = drawn((features, rank), std=rank**-0.5)

    @property
    def croppable(self) -> bool:  # type: ignore[override]
        return set(self.config.block_strides) == {1}

    def folded(self) -> "ResidualScorer":
        return fold(self)

    def reach(self) -> dict[str, Any]:
        return {"layers": layer_table(self.layers)}

    def logits(self, images: Images) -> Tensor:
        return self._logits(images, self.position_features())

    def window_logits(self, windows: Images, pixels: Tensor) -> Tensor:
        positions = self.position_features()
        if positions is None:
            return self._logits(windows, None)
        shown = positions.flatten(1)[:, pixels].transpose(0, 1)  # n features hw
        return self._logits(windows, shown.reshape(*shown.shape[:2], *windows.shape[2:]))

    def position_features(self) -> Tensor | None:
        """What is added at each position, [features i j]."""
        if self.positions is None or self.position_matrix is None:
            return self.positions
        features: Tensor = torch.tensordot(self.position_matrix, self.positions, dims=1)
        return features

    def _logits(self, images: Images, positions: Tensor | None) -> Tensor:
        features: Tensor = self.normalize(images)
        for block, layer in enumerate((self.stem, *self.blocks), start=-1):
            features = layer(features)
            if block == self.complete and positions is not None:
                features = features + positions.to(features.dtype)
        logits: Tensor = self.head(features)
        return logits


def drawn(shape: tuple[int, ...], std: float) -> nn.Parameter:
    """Normal weights; an outline has none, and drawing them for it would import torch's compiler: half of a start."""
    start = torch.empty(shape)
    return nn.Parameter(start if start.is_meta else start.normal_(std=std))


class Block(nn.Module):
    """relu(shortcut + path), or with the mean (shake-shake: a random mixture) of two paths.

    The first path applies the large kernel first, the second path applies it last; the stride sits on the large kernel
    (on a leading 1x1 convolution it would widen the receptive field 17 to 23).
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int, config: ResidualConfig) -> None:
        super().__init__()
        self.shake = config.shake
        self.first = nn.Sequential(
            *conv_norm(before, after, kernel, stride), nn.ReLU(inplace=True), *conv_norm(after, after, 1, 1)
        )
        self.second = (
            nn.Sequential(
                *conv_norm(before, after, 1, 1), nn.ReLU(inplace=True), *conv_norm(after, after, kernel, stride)
            )
            if config.paths == 2
            else None
        )
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(before, after, 1, stride))

    def forward(self, features: Tensor) -> Tensor:
        path: Tensor = self.first(features)
        if self.second is not None:
            other: Tensor = self.second(features)
            path = shake(path, other) if self.shake and self.training else (path + other) / 2
        return torch.relu(self.shortcut(features) + path)
