"""Score steps: what the last layer does to the logits, softly for the loss and as integers for the rules (App. A.3).

Rules add integers, so that no sum depends on rounding or order. A step therefore ends in fixed point: `unit` stands
for 1.0, and values saturate at `bounds`.
"""

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from bagcert.errors import unknown_name
from bagcert.tensors import Scores

IN_UNITS, IN_LOGITS = "units", "logits"  # a guard band of units around each score, or of logits around 0


class ScoreStep(ABC):
    """The last layer of a scorer, in its two forms."""

    name: str
    unit: int  # this integer stands for the score 1.0
    bounds: tuple[int, int]  # no integer score lies outside, whatever the image
    band: str | None = IN_UNITS  # how a guard band around its scores is given; None: there is none

    @abstractmethod
    def soft(self, logits: Tensor) -> Scores:
        """What the loss sees: float32, differentiable."""

    @abstractmethod
    def fixed(self, logits: Tensor) -> Scores:
        """What the rules see: int32 within `bounds`."""

    def _round(self, values: Tensor) -> Scores:
        low, high = self.bounds
        # A NaN has no integer; as the lowest score it stays within the bounds that the rules rely on.
        return (values * self.unit).round().nan_to_num(nan=low).clamp(low, high).to(torch.int32)


class HeavisideStep(ScoreStep):
    """H(x) = 1 for x ≥ 0, else 0; its gradient is replaced by that of the logistic sigmoid (section 3.2)."""

    name = "heaviside"
    unit = 1
    bounds = (0, 1)
    band = IN_LOGITS

    def soft(self, logits: Tensor) -> Scores:
        logits = logits.float()
        smooth = logits.sigmoid()
        # The bracket is exactly zero: the value is the vote, the gradient is s(x)(1 - s(x)).
        return (logits >= 0).float() + (smooth - smooth.detach())

    def fixed(self, logits: Tensor) -> Scores:
        return (logits >= 0).to(torch.int32)


class SigmoidStep(ScoreStep):
    """The element-wise sigmoid (App. A.3).

    Integers are rounded from float64. torch computes the last numbers of a tensor, or of a thread's share, in another
    way than the others, so in float32 a score could depend on the place of its image in the batch. Every float32 is at
    least 2e-11 units away from where the rounding turns, a hundred times the error of float64.
    """

    name = "sigmoid"
    unit = 2**10
    bounds = (0, 2**10)

    def soft(self, logits: Tensor) -> Scores:
        return logits.float().sigmoid()

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(logits.float().double().sigmoid())


def wide_softmax(logits: Tensor) -> Tensor:
    """In float64, where rounding, which may differ from place to place in a batch, all but never decides a score."""
    return logits.float().double().softmax(dim=1)


class SoftmaxStep(ScoreStep):
    """The softmax over the classes of each position (App. A.3); integers are rounded from float64, as the sigmoid's."""

    name = "softmax"
    unit = 2**10
    bounds = (0, 2**10)

    def soft(self, logits: Tensor) -> Scores:
        return logits.float().softmax(dim=1)

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(wide_softmax(logits))


class TanhStep(ScoreStep):
    """The clipping of Clipped BagNet, tanh(a x + b) with b = -1: without evidence a class scores low (Zhang et al.).

    Differs from the paper: a = 1, not 0.05, which fits the large logits of a network trained without the step. Ours is
    trained through it from the start; there a only scales the head, and 0.05 would slow it down twenty times.

    Rounded from float64, as the sigmoid is; here the least distance is 1e-8 units.
    """

    name = "tanh"
    unit = 2**10
    bounds = (-(2**10), 2**10)

    def soft(self, logits: Tensor) -> Scores:
        return (logits.float() - 1).tanh()

    def fixed(self, logits: Tensor) -> Scores:
        return self._round((logits.float() - 1).double().tanh())


class ReluStep(ScoreStep):
    """Evidence of at least 0, as PatchGuard's masking needs it: max(x, 0); integers saturate at 64.0.

    The loss sees softplus instead, log(1 + exp(x)), which is at most 0.7 more. Trained through max(x, 0) itself, a
    class without evidence anywhere would never learn.
    """

    name = "relu"
    unit = 2**8
    bounds = (0, 2**14)

    def soft(self, logits: Tensor) -> Scores:
        return torch.nn.functional.softplus(logits.float())

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(logits.float().clamp(min=0))


class ThresholdStep(ScoreStep):
    """A vote for every class whose softmax is at least θ: several classes, or none (Levine & Feizi).

    θ stands for the nearest float32, so the comparison itself is exact; votes compare it with a softmax in float64.
    Its gradient is replaced by that of the softmax.
    """

    name = "threshold"
    unit = 1
    bounds = (0, 1)
    band = None

    def __init__(self, theta: float) -> None:
        self.theta = theta
        self.nearest = float(np.float32(theta))

    def soft(self, logits: Tensor) -> Scores:
        smooth = logits.float().softmax(dim=1)
        return (smooth >= self.theta).float() + (smooth - smooth.detach())

    def fixed(self, logits: Tensor) -> Scores:
        return (wide_softmax(logits) >= self.nearest).to(torch.int32)


class LogitStep(ScoreStep):
    """The logits themselves, for rules that need no bounds (two-mask); integers saturate at ±4096.0."""

    name = "logits"
    unit = 2**8
    bounds = (-(2**20), 2**20)

    def soft(self, logits: Tensor) -> Scores:
        return logits.float()

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(self.soft(logits))


class CountStep(ScoreStep):
    """For views that count: the counts themselves. Attacks are steered by plain logits."""

    name = "count"
    unit = 1
    band = None

    def __init__(self, most: int) -> None:
        self.bounds = (0, most)

    def soft(self, logits: Tensor) -> Scores:
        return logits.float()

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(logits)


class OneMaskStep(LogitStep):
    """For a map whose last row holds the logits of the plain image: its last cell becomes what all others lack of them.

    So all cells add up to the plain logits, exactly, and the others stay the logits under single masks.
    """

    name = "one-mask"

    def __init__(self, masks: int) -> None:
        low, high = LogitStep.bounds
        self.bounds = (low - masks * high, high - masks * low)

    def soft(self, logits: Tensor) -> Scores:
        return balanced(logits.float())

    def fixed(self, logits: Tensor) -> Scores:
        return balanced(LogitStep().fixed(logits))


def balanced(maps: Tensor) -> Tensor:
    """Maps [b k i j] whose cells add up to what the last one was; the other cells of the last row become 0."""
    masked, plain = maps[:, :, :-1], maps[:, :, -1:, -1:]
    rest = plain - masked.sum(dim=(2, 3), keepdim=True, dtype=maps.dtype)
    return torch.cat([masked, torch.nn.functional.pad(rest, (maps.shape[3] - 1, 0))], dim=2)


STEPS: dict[str, ScoreStep] = {
    step.name: step for step in (HeavisideStep(), SigmoidStep(), SoftmaxStep(), TanhStep(), ReluStep(), LogitStep())
}


def score_step(name: str) -> ScoreStep:
    """The step of that name."""
    if name not in STEPS:
        raise unknown_name("score step", str(name), STEPS)
    return STEPS[name]
