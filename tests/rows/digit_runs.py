"""Small runs on the 8x8 digits, with weights that say something without training."""

from pathlib import Path
from typing import Any

import torch

from bagcert.data import load_dataset
from bagcert.scorers.interval import IntervalConfig, IntervalScorer
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.training.run import RunFolder, save_run

DIGITS = load_dataset("digits")
SMALL = ("1x1", "2x2", "1x3")


def save_digit_run(
    folder: Path,
    step: str = "heaviside",
    rule: str = "every-region",
    stride: int = 1,
    bias: float = 0.4,
    positions: bool = False,
) -> Path:
    """A run with random weights whose logits are shifted so that the classes differ over all images."""
    torch.manual_seed(0)
    config = ResidualConfig(10, 1, 8, (3,), (stride,), paths=1, shake=False, positions=positions, step=step)
    scorer = ResidualScorer(config, (8, 8), DIGITS.mean, DIGITS.std).eval()
    with torch.no_grad():  # some classes win by a lot, so that some images are certified
        scorer.head.weight.mul_(0.3)
        assert scorer.head.bias is not None
        scorer.head.bias.copy_(torch.linspace(-bias, bias, 10))
    facts: dict[str, Any] = {
        "classes": list(DIGITS.classes),
        "data": {"name": "digits", "digest": DIGITS.digest},
        "patch": "1x1",
        "rule": rule,
    }
    save_run(RunFolder(folder), scorer, scorer.state_dict(), facts)
    return folder


def save_view_run(folder: Path, shift: float = 0.5) -> Path:
    """A run of interval bounds with random weights; one class is ahead in all logits, so that some bounds hold."""
    torch.manual_seed(0)
    config = IntervalConfig(classes=10, channels=1, widths=(4,), strides=(1,), features=8, patch=(1, 1))
    scorer = IntervalScorer(config, (8, 8), DIGITS.mean, DIGITS.std).eval()
    with torch.no_grad():
        scorer.head.bias[3] += shift
    facts: dict[str, Any] = {
        "classes": list(DIGITS.classes),
        "data": {"name": "digits", "digest": DIGITS.digest},
        "patch": "1x1",
        "rule": "unanimous",
    }
    save_run(RunFolder(folder), scorer, scorer.state_dict(), facts)
    return folder
