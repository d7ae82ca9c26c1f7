"""Interval arithmetic through linear layers and ReLU, with room for every rounding.

A box with center c and radius r holds a value v when |v - c| <= r + 8u (|c| + r), u = 2^-53. In exact arithmetic a
linear layer maps it to the center W c + b and the radius |W| r. In float64 we take

    r' = |W| (r + ε (r + |c|)) + ε |b|,          ε = 2^-32,

and then the box holds all that the layer can *compute*, in any order of summation, for inputs that the box before held.
Proof. A sum of fewer than 2^17 products, in any order, with or without fused steps, is off by at most γ = 2^-35 times
the sum of their sizes. So the result for v is off by γ (|W||v| + |b|), that for the center by γ (|W||c| + |b|), and the
computed radius is at least 1 - γ of the exact one. With |v| <= (1 + 8u)(|c| + r) all of this is at most
(8u + 5γ) |W| (|c| + r) + 3γ |b|, less than what ε adds. ReLU is monotone, and its ends c ± r and the new center and
radius are off by a few u of the larger end, which 8u covers.

Said plainly: the bound on sums leaves out underflow, and it does not hold for convolutions by Winograd or Fourier
transforms: `interval.py` goes without cuDNN, which has them, and then torch computes float64 convolutions as products
of matrices. Training takes ε = 0 and float32.
"""

from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

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
    """How far each class stays above each other one whatever the box holds: [n k] features to [n k k], (of, over).

    The difference of two classes is one linear function, in which what both share cancels: hence |W_a - W_b| r.
    Where the margin is above 0, the computed logit of the one is above that of the other. With slack the errors of the
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
