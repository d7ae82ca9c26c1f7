"""A rule, a network, a score step and a patch shape that the package does not have: each one class or function."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, final

import torch
from torch import Tensor, nn

from bagcert.rules import Certificate, EveryRegion, IntegerScores, Rule
from bagcert.rules.rule import weakest
from bagcert.rules.scores import sums
from bagcert.scorers.base import BuiltScorer, NetworkConfig
from bagcert.scorers.footprint_table import layer_table
from bagcert.scorers.steps import ScoreStep, score_step
from bagcert.tensors import Images, Scores
from bagcert.threats import Footprint, Layer, Regions, RegionThreat, Threat
from bagcert.threats.threat import Size
from bagcert.training.run import RunFolder, save_run
from tests.rows.digit_runs import DIGITS


@final
@dataclass(frozen=True)
class Fearful(Rule):
    """`every-region`, but each score in R(l) counts twice: sound, and proves less."""

    name: ClassVar[str] = "fearful"

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return sums(scores.values).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        return weakest(self.leads(scores, predicted, regions), predicted, regions)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        return EveryRegion().leads(replace(scores, bounds=twice(scores.need_bounds(self.name))), classes, regions)


def twice(bounds: tuple[int, int]) -> tuple[int, int]:
    return 2 * bounds[0], 2 * bounds[1]


class StairStep(ScoreStep):
    """0, 1 or 2 votes."""

    name = "stair"
    unit = 1
    bounds = (0, 2)
    band = None

    def soft(self, logits: Tensor) -> Scores:
        return 2 * logits.float().sigmoid()

    def fixed(self, logits: Tensor) -> Scores:
        return self._round(self.soft(logits))


@dataclass(frozen=True)
class SingleConfig(NetworkConfig):
    """One convolution, and nothing else."""

    name: ClassVar[str] = "single"
    classes: int = 10
    channels: int = 1
    kernel: int = 3
    step: str = "heaviside"

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "SingleScorer":
        return SingleScorer(self, image_size)


class SingleScorer(BuiltScorer):
    """Says what makes its footprint, so that rows can be verified."""

    config: SingleConfig

    def __init__(self, config: SingleConfig, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.config = config
        self.step = score_step(config.step)
        self.conv = nn.Conv2d(config.channels, config.classes, config.kernel, padding=config.kernel // 2)
        self.layers = [Layer(config.kernel, padding=config.kernel // 2)]
        self.footprint = Footprint.of_layers(self.layers, image_size)

    def logits(self, images: Images) -> Tensor:
        logits: Tensor = self.conv(images)
        return logits

    def reach(self) -> dict[str, Any]:
        return {"layers": layer_table(self.layers)}


def read_plus(text: re.Match[str], image_size: Size) -> Threat:
    """`plus:3`: a cross of three rows and three columns, wherever it fits."""
    side = int(text[1])
    masks = []
    for row in range(image_size[0] - side + 1):
        for column in range(image_size[1] - side + 1):
            mask = torch.zeros(image_size, dtype=torch.bool)
            mask[row + side // 2, column : column + side] = mask[row : row + side, column + side // 2] = True
            masks.append(mask)
    return RegionThreat(torch.stack(masks), written=text[0])


def save_single_run(folder: Path, step: str = "heaviside") -> Path:
    """A run of one convolution: class 0 where it is dark, class 1 where it is light, by more or fewer votes."""
    scorer = SingleConfig(step=step).build((8, 8), DIGITS.mean, DIGITS.std).eval()
    with torch.no_grad():
        assert scorer.conv.bias is not None
        scorer.conv.weight.zero_()
        scorer.conv.weight[0], scorer.conv.weight[1] = -2.0, 2.0
        scorer.conv.bias.copy_(torch.tensor([8.0, -8.0, *[-20.0] * 8]))
    facts = {
        "classes": list(DIGITS.classes),
        "data": {"name": "digits", "digest": DIGITS.digest},
        "patch": "1x1",
        "rule": "every-region",
    }
    save_run(RunFolder(folder), scorer, scorer.state_dict(), facts)
    return folder
