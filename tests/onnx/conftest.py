"""A small defense of each kind of score, quick to export and to audit."""

import pytest
import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.scorers.residual import ResidualConfig, ResidualScorer

NAMES = ("cat", "dog", "ship")


def small_defense(step: str, rule: str) -> Defense:
    """Random features under a 3x3 patch on 12x12 images; the classes lean on brightness, so that some are certified."""
    torch.manual_seed(3)
    config = ResidualConfig(classes=3, width=8, kernels=(3, 1), paths=1, shake=False, step=step)
    scorer = ResidualScorer(config, (12, 12)).eval()
    with torch.no_grad():
        scorer.head.weight *= 50  # leads of many units
        middle = scorer.logits(pictures()).mean(dim=(0, 2, 3))
        assert scorer.head.bias is not None
        scorer.head.bias -= middle
    return Defense.build(scorer, rule, "2x2", NAMES)


def pictures(count: int = 24) -> Tensor:
    """From dark to bright, with noise."""
    noise = torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    return (noise * 0.3 + torch.linspace(0, 0.7, count)[:, None, None, None]).clamp(0, 1)


@pytest.fixture
def images() -> Tensor:
    return pictures()
