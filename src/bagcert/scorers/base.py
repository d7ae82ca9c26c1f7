"""What every scorer is: a network whose scores at one position see only a small part of the image."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.scorers.steps import ScoreStep
from bagcert.shapes import Images, Scores
from bagcert.threats import Footprint


class Scorer(nn.Module, ABC):
    """Score all regions of an image in one forward pass: f_θ of section 3.2."""

    footprint: Footprint  # which scores a patch can reach
    step: ScoreStep

    @abstractmethod
    def logits(self, images: Images) -> Tensor:
        """The scores before the score step, [b k i j]; images have pixels in [0, 1]."""

    def forward(self, images: Images) -> Scores:
        """The scores that a loss sees: float32, differentiable."""
        return self.step.soft(self.logits(images))

    @torch.no_grad()
    def scores(self, images: Images) -> Scores:
        """The integer scores that a rule sees, int32 within `step.bounds`."""
        if any(module.training for module in self.modules()):
            # In training mode batch norm mixes all positions of all images: no footprint would hold.
            raise UsageError("expected a scorer in evaluation mode, got training mode; call scorer.eval() first")
        return self.step.fixed(self.logits(images))


class Normalize(nn.Module):
    """Shift and scale the channels; inside the network, so that patches live in the pixel range [0, 1]."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(1, -1, 1, 1))

    def forward(self, images: Images) -> Images:
        return (images - self.mean) / self.std
