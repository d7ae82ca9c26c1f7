"""A network at every second row and column of its positions: what it learns there holds at all of them.

After the last 3x3 convolution each layer sees one position at a time, and these layers are most of the arithmetic. At a
quarter of the positions they cost a quarter of it, and so does that convolution. Neighboring positions see nearly the
same pixels, so a step teaches little less.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.errors import UsageError
from bagcert.scorers.residual import Block, ResidualScorer
from bagcert.tensors import Images, Scores

Phase = tuple[Tensor, Tensor]  # bool: whether the odd rows are meant, and the odd columns


def phases(device: torch.device) -> list[Phase]:
    """All four, as tensors, so that a network is compiled once for all of them."""
    no, yes = (torch.tensor(value, device=device) for value in (False, True))
    return [(down, across) for down in (no, yes) for across in (no, yes)]


class Thinned(nn.Module):
    """The scores that the scorer has at the rows and columns of a phase, by the same weights."""

    def __init__(self, scorer: ResidualScorer) -> None:
        super().__init__()
        if getattr(scorer, "complete", -1) < 0 or scorer.config.paths > 1 or set(scorer.config.block_strides) != {1}:
            raise UsageError("Only residual networks of one path and stride 1 can be thinned. Leave out --thinned.")
        self.scorer = scorer

    def forward(self, images: Images, down: Tensor, across: Tensor) -> Scores:
        scorer, positions = self.scorer, self.scorer.position_features()
        features: Tensor = scorer.stem(scorer.normalize(images))
        for number, block in enumerate(scorer.blocks):
            if number != scorer.complete:
                features = block(features)
                continue
            assert isinstance(block, Block)
            features = thin_block(block, features, down, across)
            if positions is not None:
                features = features + moved(positions, down, across)[..., ::2, ::2].to(features.dtype)
        logits: Tensor = scorer.head(features)
        return scorer.step.soft(logits)


def thin_block(block: Block, features: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """A block at every second position: its large kernel, which comes first, takes two steps at a time."""
    conv, *rest = block.first
    assert isinstance(conv, nn.Conv2d)
    border = conv.kernel_size[0] // 2
    near = moved(F.pad(features, (border,) * 4), down, across)
    path = F.conv2d(near, conv.weight, conv.bias, stride=2)
    for layer in rest:
        path = layer(path)
    height, width = path.shape[2:]
    here = near[:, :, border:, border:][:, :, : 2 * height : 2, : 2 * width : 2]
    return torch.relu(block.shortcut(here) + path)


def moved(values: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """All rows but the first or the last one, and all columns: the even ones are then those of the phase.

    Both are cut out and one is chosen, for a gradient of an index would be added up pixel by pixel.
    """
    values = torch.where(down, values[..., 1:, :], values[..., :-1, :])
    return torch.where(across, values[..., 1:], values[..., :-1])


def thin_window(window: tuple[int, int]) -> tuple[int, int]:
    """So many of the rows and columns that remain lie in a window: its size halved, once up and once down."""
    height, width = window
    return (height + 1) // 2, width // 2
