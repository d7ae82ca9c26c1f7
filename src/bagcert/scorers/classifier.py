"""A whole-image classifier, to which rival defenses show many ablated or masked copies of an image."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from bagcert.errors import UsageError
from bagcert.scorers.base import conv_norm

WHOLE = 8  # products over a multiple of so many features are rounded alike for all rows, whatever their place


@dataclass(frozen=True)
class ClassifierShape:
    """The size of a residual classifier; the defaults are ResNet-18 for small images."""

    channels: int
    classes: int
    width: int = 64  # of the first stage; each later one doubles it and halves the image
    blocks: tuple[int, ...] = (2, 2, 2, 2)  # of each stage

    def __post_init__(self) -> None:
        if min(self.channels, self.classes - 1, self.width) < 1:
            raise UsageError("The network must have at least 2 classes, 1 channel and width 1, but has fewer.")
        if not self.blocks or min(self.blocks) < 1:
            raise UsageError(
                f"The value of network.blocks must be at least 1 for each stage, but is {list(self.blocks)}."
            )


class Classifier(nn.Module):
    """From images [b c h w] to logits [b k]: a 3x3 stem, stages of residual blocks, the mean over the image, a head.

    Its blocks and its pooling look at the whole image. So it is not a scorer by itself; what it is shown decides
    what a patch can reach.
    """

    def __init__(self, shape: ClassifierShape) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(shape.channels, shape.width, 3, 1), nn.ReLU(inplace=True))
        blocks, before = [], shape.width
        for stage, count in enumerate(shape.blocks):
            after = shape.width * 2**stage
            for number in range(count):
                blocks.append(BasicBlock(before, after, stride=2 if stage and not number else 1))
                before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, shape.classes)

    def forward(self, images: Tensor) -> Tensor:
        maps: Tensor = self.blocks(self.stem(images.contiguous(memory_format=torch.channels_last)))
        features, weight = maps.mean(dim=(2, 3)), self.head.weight
        if spare := -features.shape[1] % WHOLE:
            features, weight = (functional.pad(each, (0, spare)) for each in (features, weight))
        return functional.linear(features, weight, self.head.bias)


class BasicBlock(nn.Module):
    """relu(shortcut + path), the path being two 3x3 convolutions (He et al. 2016)."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            *conv_norm(before, after, 3, stride), nn.ReLU(inplace=True), *conv_norm(after, after, 3, 1)
        )
        same = before == after and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(*conv_norm(before, after, 1, stride))

    def forward(self, features: Tensor) -> Tensor:
        return torch.relu(self.shortcut(features) + self.path(features))
