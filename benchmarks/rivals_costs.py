"""What one decision of a defense costs: passes, arithmetic, time; and what its paper's tie rule would add."""

from dataclasses import dataclass, replace

import torch
from torch.utils.flop_counter import FlopCounterMode

from bagcert.defenses.defense import Defense
from bagcert.evaluation.comparison.costs import Cost, Ties, Training
from bagcert.evaluation.comparison.ties import Harmless, added_by_ties
from bagcert.evaluation.rows import Evaluation
from bagcert.scorers.ablation import AblationScorer
from bagcert.scorers.base import BuiltScorer, Scorer
from bagcert.scorers.cleanser import CleanserScorer
from bagcert.scorers.interval import IntervalScorer
from bagcert.training.folder import device_name
from benchmarks.storing import Subject
from benchmarks.table1 import BATCH, measured


def passes(scorer: Scorer) -> int:
    """How often the network is run for one image; an interval pass, which carries two numbers for each, is one."""
    if isinstance(scorer, AblationScorer):
        return len(scorer.rows) * len(scorer.columns)
    if isinstance(scorer, CleanserScorer):
        return len(scorer.hidden) * (len(scorer.hidden) + 1) // 2
    if isinstance(scorer, IntervalScorer):
        return len(scorer.hidden) + 1
    return 1


def flops(defense: Defense) -> int:
    """Of the scores of one image, counted while they are computed."""
    assert isinstance(defense.scorer, BuiltScorer)
    image = torch.zeros(1, defense.scorer.config.channels, *defense.scorer.footprint.image_size)
    with FlopCounterMode(display=False) as counter:
        replace(defense, batch_size=1).scores(image)
    return int(counter.get_total_flops())


@dataclass(frozen=True)
class Meter:
    """On which device, in which arithmetic."""

    device: torch.device
    precision: str

    def cost(
        self,
        subject: Subject,
        evaluation: Evaluation,
        images: int,
        training: Training,
        tie_rule: tuple[str, Harmless] | None = None,
    ) -> Cost:
        """Time network and rule on the first images, scaled to 10,000."""
        pixels = next(iter(subject.source.batches(min(images, len(subject.source)), self.device))).images
        # No larger than the images: a pass that is filled up would be timed as if it were full.
        size = min(BATCH[self.device.type], len(pixels))
        defense = replace(subject.defense.against(evaluation.patch, evaluation.rule), batch_size=size)
        spent = measured(subject.header["model"], defense, pixels, repeats=1)
        seconds = (spent["network_seconds"] + spent["rule_seconds"]) * 10_000 / len(pixels)
        ties = None
        if tie_rule is not None:
            words, harmless = tie_rule
            ties = Ties(words, int(added_by_ties(defense, defense.scores(pixels), harmless).sum()))
        return Cost(
            defense=subject.header["model"],
            weights_sha256=subject.header["weights_sha256"],
            patch=evaluation.patch,
            rule=evaluation.rule,
            device=device_name(self.device),
            torch=torch.__version__,
            precision=self.precision,
            passes=passes(defense.scorer),
            flops=flops(defense),
            parameters=spent["parameters"],
            images=len(pixels),
            seconds=round(seconds, 3),
            training=training,
            ties=ties,
        )
