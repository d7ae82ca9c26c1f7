"""A running average of the weights, often better than the weights themselves."""

import torch
from torch import Tensor, nn


class Average:
    """The exponential average of all weights and batch-norm statistics of a scorer.

    The statistics are averaged with the weights: those of any single step belong to other weights than the average.
    """

    def __init__(self, scorer: nn.Module, decay: float) -> None:
        self.decay = decay
        self.source = scorer.state_dict(keep_vars=False)
        self.values = {name: value.clone() for name, value in self.source.items()}
        self._float = [name for name, value in self.values.items() if value.is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after `step` (from 0); early steps weigh more, so the start is soon forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        values: list[Tensor] = [self.values[name] for name in self._float]
        torch._foreach_lerp_(values, [self.source[name] for name in self._float], 1 - decay)
        for name, value in self.values.items():
            if name not in self._float:
                value.copy_(self.source[name])
