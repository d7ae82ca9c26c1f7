"""Interval bounds for patches (Chiang et al. 2020): what can a network say when a rectangle may hold anything?

Interval arithmetic through linear layers and ReLU, with room for every rounding.

A box with center c and radius r holds a value v when |v - c| <= r + 8u (|c| + r), u = 2^-53. In exact arithmetic a
linear layer maps it to the center W c + b and the radius |W| r. In float64 we take

    r' = |W| (r + ε (r + |c|)) + ε |b|,          ε = 2^-32,

and then the box holds all that the layer can *compute*, in any order of summation, for inputs that the box before held.
Proof. A sum of fewer than 2^17 products, in any order, with or without fused steps, is off by at most γ = 2^-35 times
the sum of their sizes. So the result for v is off by γ (|W||v| + |b|), that for the center by γ (|W||c| + |b|), and the
computed radius is at least 1 - γ of the exact one. With |v| <= (1 + 8u)(|c| + r) all of this is at most
(8u + 5γ) |W| (|c| + r) + 3γ |b|, less than what ε adds. ReLU is monotone, and its ends c ± r and the new center and
radius are off by a few u of the larger end, which 8u covers.

Two limits: the bound on sums leaves out underflow, and it does not hold for convolutions by Winograd or Fourier
transforms. So this file does without cuDNN, which has them; torch then computes float64 convolutions as products
of matrices. Training uses ε = 0 and float32.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.program import at_once, full_precision
from bagcert.scorers.base import MARGINS, WIDEST, Channels, Classes, Normalize
from bagcert.scorers.views import HidingConfig, HidingScorer, Patch
from bagcert.tensors import Images, Scores

SLACK = 2.0**-32
LONGEST_SUM = 2**17


class Box(NamedTuple):
    """What a tensor inside the network can be, element by element."""

    center: Tensor
    radius: Tensor

    @staticmethod
    def between(low: Tensor, high: Tensor) -> "Box":
        return Box((low + high) / 2, (high - low) / 2)

    def widened(self, slack: float) -> Tensor:
        """The radius with its share for rounding."""
        return self.radius + slack * (self.radius + self.center.abs()) if slack else self.radius

    def relu(self) -> "Box":
        return Box.between((self.center - self.radius).clamp(min=0), (self.center + self.radius).clamp(min=0))


def linear(layer: nn.Module, values: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution or a fully connected layer, with these weights instead of its own."""
    if isinstance(layer, nn.Conv2d):
        return F.conv2d(values, weight, bias, layer.stride, layer.padding)
    return F.linear(values.flatten(1), weight, bias)


def forward(layer: nn.Conv2d | nn.Linear, values: Tensor) -> Tensor:
    """The layer, in the type of the values."""
    assert layer.bias is not None
    return linear(layer, values, layer.weight.to(values.dtype), layer.bias.to(values.dtype))


def through(layer: nn.Conv2d | nn.Linear, box: Box, slack: float) -> Box:
    """The box after a linear layer."""
    assert layer.bias is not None
    radius = linear(layer, box.widened(slack), layer.weight.to(box.center.dtype).abs(), None)
    if slack:
        bias = layer.bias.to(radius.dtype).abs()
        radius = radius + slack * bias.view(-1, *[1] * (radius.dim() - 2))
    return Box(forward(layer, box.center), radius)


def least_margins(head: nn.Linear, box: Box, slack: float) -> Tensor:
    """How far each class stays above each other one, whatever the box holds: [n features] to [n k k], (of, over).

    The difference of two classes is one linear function, in which what both share cancels: hence |W_a - W_b| r.
    If the margin is above 0, the computed logit of the one is above that of the other. With slack the errors of the
    logits themselves, ε ((|W_a| + |W_b|)(|c| + r) + |b_a| + |b_b|), are taken off as well.
    """
    weight = head.weight.to(box.center.dtype)
    logits = forward(head, box.center)
    apart = (weight[:, None] - weight).abs().flatten(0, 1)  # k*k features
    spread = F.linear(box.widened(slack), apart).view(*logits.shape, -1)
    margins = logits[:, :, None] - logits[:, None, :] - spread
    if slack:
        assert head.bias is not None
        sizes = F.linear(box.center.abs() + box.radius, weight.abs(), head.bias.to(weight.dtype).abs())
        margins = margins - slack * (sizes[:, :, None] + sizes[:, None, :])
    return margins


RAMP_POWER = 4  # opened in proportion to time, bounds outrun the weights within 100 steps, and all logits become equal
BOXES_AT_ONCE = {"cpu": 2**7, "cuda": 2**11}  # images with a hidden rectangle, bounded per pass


@dataclass(frozen=True)
class IntervalConfig(HidingConfig):
    """A chain of convolutions and two fully connected layers; the defaults are the paper's for CIFAR-10."""

    name: ClassVar[str] = "interval"
    classes: Classes = 10
    channels: Channels = 3
    widths: Annotated[tuple[int, ...], Key("features of the 3x3 convolutions", most=WIDEST)] = (64, 64, 128, 128, 128)
    strides: Annotated[tuple[int, ...], Key("strides of the 3x3 convolutions", most=99)] = (1, 1, 2, 1, 1)
    features: Annotated[int, Key("features before the head", most=WIDEST)] = 512
    patch: Patch = (5, 5)
    # No fewer than there are placements: each is bounded on its own.
    masks: Annotated[int, Key("rectangles to bound along each axis, at most", most=10_000)] = 1024
    placements: Annotated[int, Key("random placements in each training step", most=10_000)] = 20
    ramp: Annotated[
        tuple[float, float], Key("shares of the run: until when nothing is hidden, from when on all is")
    ] = (0.05, 0.655)

    def __post_init__(self) -> None:
        least = min(
            self.classes - 1, self.channels, *self.widths, *self.strides, self.features, *self.patch, self.masks
        )
        if len(self.widths) != len(self.strides) or min(least, self.placements) < 1:
            raise UsageError("The network must have as many strides as widths, and no number below 1.")
        if not 0 <= self.ramp[0] < self.ramp[1] <= 1:
            raise UsageError(
                f"The value of network.ramp must be two growing shares of the run, but is {list(self.ramp)}."
            )

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "IntervalScorer":
        return IntervalScorer(self, image_size, mean, std)


class IntervalScorer(HidingScorer):
    """View l counts, for each class, the rivals it provably beats whatever the pixels in rectangle l are.

    The pixels of l become the whole range [0, 1], and bounds follow that box through the network. The view that hides
    nothing counts the rivals that a class beats in the plain logits, the lowest index on ties: exactly one class,
    the network's answer, beats all.

    Unanimous views agree: the image itself lies in the box of every view, so a class that provably beats all rivals
    there beats them in the plain logits. Hence the rule `unanimous` always predicts the plain argmax, and its
    certificate is Chiang's, for the class predicted: positive margins over all rivals, at every placement.

    Bounds and logits are computed in float64, and bounds are widened so that they hold what float64 computes, not only
    what real numbers would give: the proof heads this file. They do not depend on the batch or the order of sums.
    """

    trains: ClassVar[str] = MARGINS
    config: IntervalConfig
    opened: Tensor  # how far the hidden rectangles are open in training, 0 to 1

    def __init__(
        self, config: IntervalConfig, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(mean, std, config.channels)
        convolutions, before, (height, width) = [], config.channels, image_size
        for after, stride in zip(config.widths, config.strides, strict=True):
            convolutions.append(nn.Conv2d(before, after, 3, stride=stride, padding=1))
            before, height, width = after, -(-height // stride), -(-width // stride)
        inputs = before * height * width
        longest = max(inputs, config.features, 9 * config.channels, *(9 * each for each in config.widths[:-1]))
        if longest + 1 >= LONGEST_SUM:  # with the bias
            raise UsageError(
                f"Each sum of a layer must have fewer than {LONGEST_SUM} terms, but one has {longest + 1}. Use strides."
            )
        self.layers = nn.ModuleList([*convolutions, nn.Linear(inputs, config.features)])
        self.head = nn.Linear(config.features, config.classes)
        self.register_buffer("opened", torch.ones(()), persistent=False)
        self.hide(self.rectangles(config.patch, image_size))

    @property
    def own_program(self) -> dict[str, Any]:
        return {"dtype": "float64"}

    @property
    def passes(self) -> int:
        """An interval pass counts as one, though it carries two numbers per value."""
        return len(self.hidden) + 1

    @property
    def questions(self) -> int:
        return self.config.classes - 1

    def begin_step(self, progress: float) -> None:
        start, end = self.config.ramp
        self.opened.fill_(min(1.0, max(0.0, (progress - start) / (end - start))) ** RAMP_POWER)

    def forward(self, images: Images) -> Scores:
        """The logits; in training the least margins [b of over placements], for `IntervalLoss`."""
        if not self.training:
            return self.step.soft(self.logits(images))
        drawn = torch.randint(len(self.hidden), (self.config.placements,), device=images.device)
        return self._margins(images, drawn, self.opened, slack=0.0).permute(0, 2, 3, 1).float()

    def logits(self, images: Images) -> Tensor:
        """The plain logits in float64, [b k 1 1]."""
        values = self._normalized(images.double())
        for layer in self.layers:
            values = forward(layer, values).relu()  # type: ignore[arg-type]
        return forward(self.head, values)[:, :, None, None]

    def counts(self, images: Images) -> Tensor:
        # The proof is not about bfloat16, nor about Fourier transforms, which cuDNN has.
        with torch.autocast(images.device.type, enabled=False), full_precision():
            count = max(1, at_once(BOXES_AT_ONCE, images.device) // len(images))
            wide = torch.ones((), device=images.device)
            beaten = [
                (self._margins(images.double(), views, wide, SLACK) > 0).sum(dim=3)  # b n k
                for views in torch.split(torch.arange(len(self.hidden), device=images.device), count)
            ]
            plain = self.logits(images)[:, None, :, 0, 0]  # b 1 k
        of, over = plain[..., None], plain[..., None, :]
        earlier = torch.ones(plain.shape[-1], plain.shape[-1], device=images.device).triu(diagonal=1) > 0
        whole = ((of > over) | ((of == over) & earlier)).sum(dim=3)
        return torch.cat([*beaten, whole], dim=1).transpose(1, 2)

    def _margins(self, images: Images, views: Tensor, opened: Tensor, slack: float) -> Tensor:
        """The least margins of the images with each view's rectangle open, [b n of over]."""
        opening = (self.hidden.masks(views)[:, None] * opened).to(images.dtype)  # n 1 h w
        # That part of the way from the pixel down to 0 and up to 1, which `lerp` reaches exactly.
        ends = (torch.lerp(images[:, None], images.new_full((), end), opening) for end in (0.0, 1.0))
        box = Box.between(*(self._normalized(end.flatten(0, 1)) for end in ends))
        for layer in self.layers:
            box = through(layer, box, slack).relu()  # type: ignore[arg-type]
        return least_margins(self.head, box, slack).view(len(images), len(views), *[self.config.classes] * 2)

    def _normalized(self, images: Images) -> Images:
        return (images - self.normalize.mean.to(images.dtype)) / self.normalize.std.to(images.dtype)
