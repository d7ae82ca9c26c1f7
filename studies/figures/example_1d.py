"""A 1-D input of two classes, small enough to follow by eye, run through our own network, loss and rules.

The network asks at each position: does the signal rise, does it fall? Three convolutions of kernel 3, 1 and 3 give
receptive field 5, as in the paper's illustrations; the weights are set by hand. The attacker owns pixel 0 only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from bagcert.rules import Certificate, find_rule, read_scores
from bagcert.scorers.steps import score_step
from bagcert.threats import Footprint, Layer, Regions, RegionThreat
from bagcert.training.losses import MarginLoss

CLASSES = ("rising", "falling")
TRUE, OTHER = 0, 1
SIGNAL = (0.1, 0.0, 0.0, 0.2, 0.5, 0.8, 0.3, 0.8, 0.8)
KERNELS = (3, 1, 3)
MARGIN = 0.75


@dataclass(frozen=True, eq=False)
class Example:
    """What each stage makes of the signal; maps are [classes positions]."""

    signal: Tensor
    logits: Tensor
    votes: Tensor  # 0/1
    reached: Tensor  # bool [positions]: R(l) of the attacker's only placement
    loss: float
    by_largest_region: Certificate  # Condition 3.3
    by_every_region: Certificate  # Condition 3.2

    @property
    def delta(self) -> Tensor:
        return self.votes[TRUE] - self.votes[OTHER]

    @property
    def worst_votes(self) -> Tensor:
        """s^wc of section 3.1: the attacker controls every vote inside R(l)."""
        worst = self.votes.clone()
        worst[TRUE, self.reached], worst[OTHER, self.reached] = 0, 1
        return worst


def slopes(signal: Tensor) -> Tensor:
    """Logits [classes positions] of a signal [positions]: rises and falls nearby, each minus half of the other."""
    edges = torch.tensor([[[-1.0, 0.0, 1.0]], [[1.0, 0.0, -1.0]]])
    contrast = torch.tensor([[[1.0], [-0.5]], [[-0.5], [1.0]]])
    nearby = torch.eye(2)[:, :, None].expand(2, 2, 3)
    features = F.conv1d(signal[None, None], edges, padding=1).relu()
    features = F.conv1d(features, contrast).relu()
    return F.conv1d(features, nearby, bias=torch.full((2,), -0.35), padding=1)[0]


def make_example() -> Example:
    """Network, loss and both conditions on the signal."""
    signal, step = torch.tensor(SIGNAL), score_step("heaviside")
    logits = slopes(signal)
    votes = step.fixed(logits)
    maps = votes[None, :, None]  # one image of one row
    layers = [Layer(kernel=(1, kernel), padding=(0, kernel // 2)) for kernel in KERNELS]
    pixels = torch.zeros(1, 1, len(SIGNAL), dtype=torch.bool)
    pixels[0, 0, 0] = True
    regions: Regions = Footprint.of_layers(layers, (1, len(SIGNAL))).regions(RegionThreat(pixels))
    scores = read_scores(maps, step.bounds)
    largest, every = (find_rule(rule).certify(scores, regions) for rule in ("largest-region", "every-region"))
    loss = MarginLoss(MARGIN)(maps.float(), torch.tensor([TRUE]))
    return Example(signal, logits, votes, regions.masks()[0, 0], float(loss), largest, every)
