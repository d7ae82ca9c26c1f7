"""Batch norm inside the convolution before it: fewer operations for the same scores, but for rounding."""

import copy
from typing import TypeVar

import torch
from torch import nn

from bagcert.errors import UsageError

Network = TypeVar("Network", bound=nn.Module)


def fold(network: Network) -> Network:
    """A copy in which each batch norm that follows a convolution is part of it.

    Batch norm in evaluation mode is y = s (x - mean) + shift, with s = weight / sqrt(variance + eps), for each feature.
    After a convolution x = W p + b that is a convolution again, with weights s W and bias s (b - mean) + shift. What
    pads the border of p stays as it was, so this holds there too, and no score sees another pixel.
    """
    if any(module.training for module in network.modules()):
        raise UsageError("The scorer is in training mode. Call scorer.eval() first.")
    copied = copy.deepcopy(network)
    for layers in [module for module in copied.modules() if isinstance(module, nn.Sequential)]:
        for index in range(len(layers) - 1):
            conv, norm = layers[index], layers[index + 1]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                layers[index], layers[index + 1] = folded_conv(conv, norm), nn.Identity()
    left = [name for name, module in copied.named_modules() if isinstance(module, nn.BatchNorm2d)]
    if left:
        raise UsageError(f"The batch norm '{left[0]}' follows no convolution, so it cannot be folded. Use exact.")
    return copied


def folded_conv(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> nn.Conv2d:
    """One convolution in place of both; computed in float64, so that it is rounded once."""
    mean, variance = norm.running_mean, norm.running_var
    if mean is None or variance is None:
        raise UsageError("A batch norm without running statistics mixes positions, so it cannot be folded. Train it.")
    scale = norm.weight.double() / (variance.double() + norm.eps).sqrt()
    bias = torch.zeros_like(scale) if conv.bias is None else conv.bias.double()
    whole = nn.Conv2d(
        conv.in_channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        conv.stride,  # type: ignore[arg-type]
        conv.padding,  # type: ignore[arg-type]
        conv.dilation,  # type: ignore[arg-type]
        conv.groups,
        padding_mode=conv.padding_mode,
        device="meta",
    )
    weight = conv.weight.double() * scale.view(-1, 1, 1, 1)
    whole.weight = nn.Parameter(weight.to(conv.weight.dtype))
    whole.bias = nn.Parameter(((bias - mean.double()) * scale + norm.bias.double()).to(conv.weight.dtype))
    return whole.eval()
