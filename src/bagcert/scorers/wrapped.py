"""Bring your own network: it is traced, the trace is checked and run, and its scores become integers."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from bagcert.errors import UsageError
from bagcert.scorers.base import BuiltScorer, Channels, Classes, HandedConfig, Step, evaluating
from bagcert.scorers.footprint_table import pixel_table
from bagcert.scorers.steps import score_step
from bagcert.tensors import Images, Scores
from bagcert.threats.footprint import IntOrPair, pair
from bagcert.threats.probe import check_footprint, check_traced, copied
from bagcert.threats.tracing import example_weight, trace


@dataclass(frozen=True)
class OwnConfig(HandedConfig):
    """A network of the caller's own that scores positions."""

    name: ClassVar[str] = "own"
    classes: Classes = 10
    channels: Channels = 3
    step: Step = "logits"

    def __post_init__(self) -> None:
        if min(self.classes, self.channels) < 1:
            raise UsageError("The network must have at least 1 class and 1 channel, but has fewer.")
        score_step(self.step)

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "WrappedScorer":
        """The network, traced, with the weights it has; it takes pixels in [0, 1] and brings its own normalization."""
        scorer = wrap(self.need_network().eval(), image_size, self.channels, self.step)
        self.need_classes(scorer.config.classes)
        scorer.train()
        return scorer


class WrappedScorer(BuiltScorer):
    """Any network from images [b c h w] to scores [b k i j] whose layers keep positions apart."""

    config: OwnConfig

    def __init__(self, module: nn.Module, image_size: tuple[int, int], channels: int, step: str) -> None:
        super().__init__()
        self.module = module
        self.step = score_step(step)
        self._trace(image_size, channels)
        self.footprint = self.traced.footprint
        self.config = OwnConfig(self.traced.classes, channels, step)

    def _trace(self, image_size: tuple[int, int], channels: int) -> None:
        # A copy is traced: code that keeps what it is given would keep what tracing gives it.
        self.traced = trace(copied(self.module), image_size, channels)
        check_traced(self.module, self.traced, channels)
        check_footprint(self.module, self.traced.footprint, channels)

    def reach(self) -> dict[str, Any]:
        return pixel_table(self.footprint)

    def forward(self, images: Images) -> Scores:
        """In training by the network's own code, in its own mode; else by the traced operations."""
        return self.step.soft(self.module(images)) if self.training else super().forward(images)

    def logits(self, images: Images) -> Tensor:
        scores: Tensor = self.traced(self.module, images.clone())  # operations that write into views get their own
        return scores

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Trace the network again on another device or type: its code may do something else there."""
        before = form(self.module)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if form(self.module) != before:
            with evaluating(self) if self.training else nullcontext():  # what is traced is what will score
                self._trace(self.footprint.image_size, self.channels)
            if not self.traced.footprint.same(self.footprint):
                raise UsageError("The network has another footprint after the move. Wrap it again.")
        return self


def form(module: nn.Module) -> tuple[torch.dtype, torch.device]:
    """The type and the device of images for this network."""
    like = example_weight(module)
    return like.dtype, like.device


def wrap(module: nn.Module, image_size: IntOrPair, channels: int = 3, step: str = "logits") -> WrappedScorer:
    """Make a scorer of your network, in evaluation mode: `wrap(net, 32).scores(images)` are the integers rules take.

    The footprint comes from tracing the network (torch.export). A layer that mixes positions is refused by its name:
    attention, norms over space, global pooling, batch norm in training mode, padding that mirrors. Scores come from the
    traced operations, never from the network's own Python code: no branch, counter, clock or global variable can make
    them see more than the footprint.

    Then the trace is checked. Single pixels are set to NaN and to other values, in float64 and as a defense runs the
    network, and no output outside the footprint may change. An image must have the same scores, bit for bit, at every
    place of a batch. The network's own code must give the scores of its trace, bit for bit, whatever the layout and the
    number of images, with gradients and without. It must change no weight, buffer or attribute of the network and draw
    no random numbers. These checks sample: a branch that none of them takes (by the clock, for rare images) and memory
    outside of the network (a global variable, a closure, a file) are not seen. The scores and their proofs are then
    those of the trace, not what the network's own code would answer.

    `step` says what the outputs are: "logits" (fixed-point, for `two-mask`), "heaviside" (a vote where an output is at
    least 0), "sigmoid" or "softmax".

    >>> import torch, bagcert
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1)).eval()
    >>> scorer = bagcert.wrap(network, 12)
    >>> scorer.footprint
    Footprint(receptive field 3x3, grid 12x12, image 12x12)
    >>> scorer.scores(torch.rand(4, 3, 12, 12)).shape
    torch.Size([4, 2, 12, 12])
    """
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"A network must be a torch.nn.Module, but is {type(module).__name__}. Give the network itself."
        )
    size = pair(image_size)
    if not isinstance(channels, int) or min(*size, channels) < 1:
        raise UsageError(
            f"Image size and channels must be whole numbers of at least 1, but are {size} and {channels!r}."
        )
    for name, weight in (*module.named_parameters(), *module.named_buffers()):
        if weight.is_meta or is_lazy(weight):
            raise UsageError(
                f"The network has no values for '{name}' yet. Load its weights, or run it once, and then wrap it."
            )
    scorer = WrappedScorer(module, size, channels, step)
    scorer.training = False  # the module's own mode is left as it is, and refused when it scores in training mode
    return scorer
