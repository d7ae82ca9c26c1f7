"""Residual networks with different receptive fields, each with a score map and a footprint of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.scorers.base import WIDEST, BuiltScorer, Channels, Classes, NetworkConfig, Scorer
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.folding import fold
from bagcert.scorers.residual import CIFAR_KERNELS, ResidualConfig, ResidualScorer
from bagcert.tensors import Images
from bagcert.threats import Footprint


@dataclass(frozen=True)
class MixedConfig(NetworkConfig):
    """Networks that differ in kernels and width only; the defaults have receptive fields 7 and 5."""

    name: ClassVar[str] = "mixed"
    classes: Classes = 10
    channels: Channels = 3
    width: Annotated[
        tuple[tuple[int, ...], ...], Key("features of the stem and of each block, by network", 1, WIDEST)
    ] = (
        (192, 192, 192, *(576,) * 6),
        (192, *(576,) * 6),
    )
    kernels: Annotated[tuple[tuple[int, ...], ...], Key("kernel of each block, by network", 1, 99)] = (
        CIFAR_KERNELS[7],
        CIFAR_KERNELS[5][:6],
    )
    paths: Annotated[int, Key("residual paths per block, 1 or 2")] = 1
    shake: Annotated[bool, Key("shake-shake between the two paths")] = False
    positions: Annotated[bool, Key("learned features of each position, added to what it sees")] = True
    position_rank: Annotated[
        int, Key("numbers that a position learns, from which its features are made; 0: one for each", 0, WIDEST)
    ] = 0
    mirrored: Annotated[bool, Key("each network also scores the mirror image: twice the arithmetic")] = False
    step: Annotated[str, Key("score step: how scores become integers")] = "logits"

    def __post_init__(self) -> None:
        if len(self.kernels) < 2 or len(self.width) != len(self.kernels):
            raise UsageError(
                "The values of network.width and network.kernels must be as many lists as there are networks, at least "
                f"2, but are {len(self.width)} and {len(self.kernels)}. Leave out network.name for one network."
            )
        assert self.networks  # each refuses what it cannot be built from

    @property
    def networks(self) -> tuple[ResidualConfig, ...]:
        """Each network by itself."""
        names = ("classes", "channels", "paths", "shake", "positions", "position_rank", "step")
        shared: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.mirrored:
            shared |= {"members": 1, "mirrored": True}
        kind = EnsembleConfig if self.mirrored else ResidualConfig
        shapes = zip(self.width, self.kernels, strict=True)
        return tuple(kind(width=width, kernels=kernels, **shared) for width, kernels in shapes)

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "MixedScorer":
        return MixedScorer(self, image_size, mean, std)


class MixedScorer(BuiltScorer):
    """The score maps of all networks as one map, row by row in turn (`Footprint.interleaved`).

    A rule adds up all scores, and a patch reaches in each map what it reaches there: with a smaller receptive field
    fewer scores. Losses know one map, so each network is trained by itself.
    """

    config: MixedConfig
    trains: ClassVar[str] = "maps of several footprints"

    def __init__(
        self, config: MixedConfig, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.config = config
        self.networks = nn.ModuleList(each.build(image_size, mean, std) for each in config.networks)
        self.step = self.parts[0].step
        self.footprint = Footprint.interleaved([part.footprint for part in self.parts])

    @property
    def parts(self) -> tuple[Scorer, ...]:
        return tuple(network for network in self.networks if isinstance(network, ResidualScorer))

    @property
    def passes(self) -> int:
        return self.parts[0].passes

    def folded(self) -> "MixedScorer":
        return fold(self)

    def reach(self) -> dict[str, Any]:
        return {"maps": [part.reach() for part in self.parts]}

    def logits(self, images: Images) -> Tensor:
        return torch.stack([part.logits(images) for part in self.parts], dim=3).flatten(2, 3)
