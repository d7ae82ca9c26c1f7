"""Residual networks side by side, each of which may also look at the mirror image; their logits are averaged."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.tensors import Images, Scores


@dataclass(frozen=True)
class EnsembleConfig(ResidualConfig):
    """Several networks of the same shape, from different random weights."""

    name: ClassVar[str] = "ensemble"
    members: Annotated[int, Key("networks side by side", most=99)] = 3
    mirrored: Annotated[bool, Key("outside training, each also scores the mirror image: twice the arithmetic")] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < (1 if self.mirrored else 2):
            raise UsageError(
                f"The value of network.members must be at least 2, or 1 with network.mirrored, but is {self.members}. "
                "Leave out network.name for one."
            )
        if self.mirrored and set(self.block_strides) != {1}:
            raise UsageError(f"With network.mirrored every stride must be 1, but they are {list(self.strides)}.")

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "EnsembleScorer":
        return EnsembleScorer(self, image_size, mean, std)


class EnsembleScorer(ResidualScorer):
    """Residual networks with one score map: the score step of their mean logits.

    Members of one shape have one footprint, and a mean of logits depends on no pixel that none of them sees: R(l) is
    that of one member. In training the loss sees each member by itself, so that they err differently.

    `mirrored` adds the logits of the mirror image, mirrored back. With stride 1 and as much padding on the left as on
    the right, the score in column j of w sees the columns j - r to j + r. What comes back to column j from the mirror
    image stood there in column w - 1 - j and saw w - 1 - j - r to w - 1 - j + r, which are the columns j + r to j - r
    of the image itself: the same pixels, so R(l) stays what it was.
    """

    config: EnsembleConfig

    def __init__(
        self, config: EnsembleConfig, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__(config, image_size, mean, std)
        self.others = nn.ModuleList(ResidualScorer(config, image_size, mean, std) for _ in range(config.members - 1))

    @property
    def passes(self) -> int:
        return 2 if self.config.mirrored else 1

    def forward(self, images: Images) -> Scores:
        """In training the scores of one member after the other, [members*b k i j]."""
        if not self.training:
            return super().forward(images)
        return torch.cat([self.step.soft(logits) for logits in self._each(images)])

    def logits(self, images: Images) -> Tensor:
        found = self._each(images)
        if self.config.mirrored:
            found += [logits.flip(-1) for logits in self._each(images.flip(-1))]
        return mean_of(found)

    def window_logits(self, windows: Images, pixels: Tensor) -> Tensor:
        found = self._each_window(windows, pixels)
        if self.config.mirrored:
            width = self.image_size[1]
            seen = (pixels - pixels % width) + (width - 1 - pixels % width)  # in the mirror image
            turned = seen.view(-1, *windows.shape[2:]).flip(-1).flatten(1)
            found += [logits.flip(-1) for logits in self._each_window(windows.flip(-1), turned)]
        return mean_of(found)

    def _each(self, images: Images) -> list[Tensor]:
        own = super().logits(images)
        return [own, *(other.logits(images) for other in self.others)]  # type: ignore[operator]

    def _each_window(self, windows: Images, pixels: Tensor) -> list[Tensor]:
        own = super().window_logits(windows, pixels)
        return [own, *(other.window_logits(windows, pixels) for other in self.others)]  # type: ignore[operator]


def mean_of(logits: Sequence[Tensor]) -> Tensor:
    """In float32 at least, and in this order: the same bits whatever the batch."""
    wide = torch.promote_types(logits[0].dtype, torch.float32)
    total = logits[0].to(wide)
    for more in logits[1:]:
        total = total + more.to(wide)
    return total / len(logits)
