"""What every scorer is: a network whose scores at one position see only a part of the image."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor, nn

from bagcert.config import Key
from bagcert.errors import UsageError
from bagcert.program import full_precision
from bagcert.scorers.steps import ScoreStep
from bagcert.tensors import Images, Scores
from bagcert.threats import Footprint, Threat

# What a loss may read.
SCORES, LOGITS, MARGINS = "scores of regions", "logits of whole images", "margins"
MASKED = "logits of masked images"  # by `DoubleMasking.under`


class Need(Enum):
    """What scores are for. Less than ALL may leave out what cannot change that, where each score takes passes."""

    ALL = "every score"
    PROOF = "the class, and whether it is certified against the threat that the scorer faces"
    CLASS = "the class alone"


class Scorer(nn.Module, ABC):
    """Score all regions of an image in one forward pass: f_θ of section 3.2."""

    footprint: Footprint  # which scores a patch can reach
    step: ScoreStep
    own_batches: ClassVar[bool] = False  # its passes have one size, however many images it is given
    views: ClassVar[bool] = False  # scores are those of `bagcert.scorers.views`; logits only steer attacks
    traceable: ClassVar[bool] = True  # its layers, followed one by one, keep positions apart
    alike: ClassVar[bool] = False  # many placements reach the same scores
    piecewise: ClassVar[bool] = False  # `logits_at` runs only what is asked for
    croppable: bool = False  # `window_logits` scores part of an image as the whole image would
    channels: int | None = None  # of its images; None: any number
    classes: int | None = None  # that it scores; None: known only from its scores

    @property
    def passes(self) -> int:
        """Forward passes per image; networks side by side count as one."""
        return 1

    @property
    def own_program(self) -> dict[str, Any]:
        """The settings of `Program` that the network itself decides."""
        return {}

    @property
    def parts(self) -> "tuple[Scorer, ...]":
        """Networks side by side, each with a map and a footprint of its own; alone, the scorer itself."""
        return (self,)

    def reach(self) -> dict[str, Any]:
        """What makes the footprint, as numbers that rows keep (`footprint_table` reads them); {} if unknown."""
        return {}

    def window_logits(self, windows: Images, pixels: Tensor) -> Tensor:
        """The logits of windows [n c h w] that show the pixels [n hw] of the flat image."""
        raise UsageError("This network takes whole images only. It cannot score parts of one.")

    def logits_at(self, images: Images, wanted: Tensor) -> Tensor:
        """The logits [b k i j]; only those at `wanted`, bool [b ij], need to be right."""
        return self.logits(images)

    @abstractmethod
    def logits(self, images: Images) -> Tensor:
        """The scores before the score step, [b k i j]; images have pixels in [0, 1]."""

    def forward(self, images: Images) -> Scores:
        """The scores that a loss sees: float32, differentiable."""
        return self.step.soft(self.logits(images))

    @torch.no_grad()
    @full_precision()
    def scores(self, images: Images, need: Need = Need.ALL) -> Scores:
        """The integer scores that a rule sees, int32 within `step.bounds`."""
        if any(module.training for module in self.modules()):
            # In training mode batch norm mixes all positions of all images: no footprint would hold.
            raise UsageError("The scorer is in training mode. Call scorer.eval() first.")
        return self.integers(images) if need is Need.ALL else self.fewer(images, need)

    def fewer(self, images: Images, need: Need) -> Scores:
        """What `scores` returns for a need that asks for less than all."""
        return self.integers(images)

    def integers(self, images: Images) -> Scores:
        """What `scores` returns, for a network known to be in evaluation mode."""
        return self.step.fixed(self.logits(images))

    def folded(self) -> "Scorer":
        """A copy with every batch norm inside the convolution before it: the same scores, but for rounding."""
        raise UsageError("This network cannot be folded, so it has no faster program. Use the program exact.")

    def facing(self, threat: Threat, views: bool = True) -> "Scorer":
        """The network to use against that threat: itself, unless what it looks at depends on the threat.

        `views` says whether the rule takes scores of views, for a network that also has others.
        """
        return self


WIDEST = 2**14  # features
Classes = Annotated[int, Key("classes of the data", most=2**16)]
Channels = Annotated[int, Key("1 for gray pictures, 3 for color", most=WIDEST)]
Step = Annotated[str, Key("score step: how scores become integers")]
Width = Annotated[int, Key("features of the classifier's first stage", most=WIDEST)]
Blocks = Annotated[tuple[int, ...], Key("residual blocks of each stage of the classifier", most=99)]


class NetworkConfig(ABC):
    """What builds a scorer: the [network] section of a recipe, kept on the card of a run."""

    classes: int
    channels: int

    brings_weights: ClassVar[bool] = False  # building it takes no memory for weights

    @abstractmethod
    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "BuiltScorer":
        """The scorer, with random weights, for images of this size and data with this mean and deviation."""

    def handed(self, network: nn.Module) -> "NetworkConfig":
        """The same config, which builds its scorer around a network of the caller's own."""
        raise UsageError("This model has a network of ours, which its card describes. Leave out your own network.")

    def need_network(self) -> nn.Module:
        """The network that the caller handed over."""
        raise UsageError("Weights of a file are for a network of your own. Add --network MODULE:FUNCTION.")


OWN = "module"  # a scorer's part that the caller handed over


class HandedConfig(NetworkConfig):
    """A network of the caller's own. A card names no code, so the caller hands the network over again to load it."""

    brings_weights: ClassVar[bool] = True
    network: ClassVar[nn.Module | None] = None  # what the caller handed over

    def handed(self, network: nn.Module) -> Self:
        config = copy.copy(self)
        object.__setattr__(config, "network", network)  # no field: a card holds numbers and names, never a network
        return config

    def need_network(self) -> nn.Module:
        if self.network is None:
            raise UsageError(
                "This model has a network of your own, which no file holds. "
                "Hand it over: load(folder, network=...) or --network MODULE:FUNCTION."
            )
        return self.network

    def need_classes(self, found: int) -> None:
        """Refuse a network that scores another number of classes than the card says."""
        if found != self.classes:
            raise UsageError(
                f"The network must score {self.classes} classes, but scores {found}. "
                f"Hand over one with a new last layer: let your function return it with {self.classes} outputs."
            )


class BuiltScorer(Scorer):
    """A scorer that its config rebuilds: what training makes, and what a run folder holds."""

    config: NetworkConfig
    trains: ClassVar[str] = SCORES  # what its forward pass returns in training

    @property
    def channels(self) -> int:  # type: ignore[override]
        return self.config.channels

    @property
    def classes(self) -> int:  # type: ignore[override]
        return self.config.classes

    def trained_for(self, threat: Threat) -> "BuiltScorer":
        """The network to train against that threat: itself, unless its config leaves open what it looks at."""
        return self

    def begin_step(self, progress: float) -> None:
        """Called before each training step with the share of all steps that is done."""


@contextmanager
def evaluating(*modules: nn.Module) -> Iterator[None]:
    """Put modules into evaluation mode, and back: each of their layers into the mode that it had."""
    modes = {layer: layer.training for module in modules for layer in module.modules()}
    for module in modules:
        module.eval()
    try:
        yield
    finally:
        for layer, training in modes.items():
            layer.training = training


class Logits(nn.Module):
    """A scorer as a plain network, for tools that trace or export one: the scores before the score step."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer
        self.training = False  # this module's; the scorer keeps its own mode

    def forward(self, images: Tensor) -> Tensor:
        return self.scorer.logits(images)


class Normalize(nn.Module):
    """Shift and scale the channels; inside the network, so that patches live in the pixel range [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float], channels: int) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            if len(values) not in (1, channels):
                raise UsageError(
                    f"Mean and std must have {channels} numbers, one per channel, or 1, but have {len(values)}."
                )
            each = torch.tensor(values, dtype=torch.float32).reshape(1, -1, 1, 1)  # one number stands for all channels
            self.register_buffer(name, torch.empty(1, channels, 1, 1).copy_(each))

    def forward(self, images: Images) -> Images:
        return (images - self.mean) / self.std


def conv_norm(before: int, after: int, kernel: int, stride: int) -> tuple[nn.Module, nn.Module]:
    """A convolution that keeps the size of the map (except for its stride), and the batch norm after it."""
    conv = nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
    return conv, nn.BatchNorm2d(after)
