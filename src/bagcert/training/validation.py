"""Clean and certified accuracy of a scorer in training, by the rule it is trained for."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from bagcert.data.base import Source
from bagcert.distributed import World
from bagcert.rules import Certificate, find_rule, read_scores
from bagcert.rules.unanimous import need_views
from bagcert.scorers.base import Scorer
from bagcert.scorers.views import HidingScorer
from bagcert.shapes import Scores
from bagcert.threats import parse_threat
from bagcert.training.recipe import EvaluationConfig


@dataclass(frozen=True)
class Accuracy:
    """Shares of the images: right by the rule's own inference, and proven right besides."""

    clean: float
    certified: float
    images: int
    votes: float  # the mean number of classes that a position has a positive score for


def check_evaluation(scorer: Scorer, classes: int, config: EvaluationConfig) -> None:
    """Refuse a patch or rule that does not fit the scorer now, not at the first evaluation."""
    faced = facing(scorer, config)
    _certify(torch.zeros(1, classes, *faced.footprint.grid, dtype=torch.int32), faced, config)


def facing(scorer: Scorer, config: EvaluationConfig) -> Scorer:
    """The scorer as it looks at images under the threat of the evaluation."""
    return scorer.facing(parse_threat(config.patch, scorer.footprint.image_size))


@torch.no_grad()
def validate(
    scorer: Scorer, weights: Mapping[str, Tensor] | None, source: Source, config: EvaluationConfig, world: World
) -> Accuracy:
    """Certify the images of `source`, with other `weights` than the scorer's own if given; the scorer is unchanged."""
    own = {name: value.clone() for name, value in scorer.state_dict().items()} if weights is not None else None
    if weights is not None:
        scorer.load_state_dict(weights)
    training = scorer.training
    faced = facing(scorer.eval(), config)
    counts = torch.zeros(4, dtype=torch.int64, device=world.device)
    size = max(1, config.batch_size // world.size) * world.size
    batches = source.batches(size, world.device, shard=world.shard)
    for batch in islice(batches, -(-config.images // size) if config.images else None):
        if len(batch.labels):
            counts += _count(faced, batch.images, batch.labels, config)
    scorer.train(training)
    if own is not None:
        scorer.load_state_dict(own)
    images, clean, certified, votes = world.sum(counts).tolist()
    rows, columns = faced.footprint.grid
    return Accuracy(clean / images, certified / images, images, votes / (images * rows * columns))


def _count(scorer: Scorer, images: Tensor, labels: Tensor, config: EvaluationConfig) -> Tensor:
    # In the precision of training: the certificates hold for these very scores, and the weights stay comparable.
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
        scores = scorer.scores(images)
    certificate = _certify(scores, scorer, config)
    right = certificate.predicted == labels
    proven = right & certificate.certified
    return torch.stack([torch.ones_like(right).sum(), right.sum(), proven.sum(), (scores > 0).sum()])


def _certify(scores: Scores, scorer: Scorer, config: EvaluationConfig) -> Certificate:
    rule = find_rule(config.rule)
    need_views(rule, promised=isinstance(scorer, HidingScorer))
    regions = scorer.footprint.regions(parse_threat(config.patch, scorer.footprint.image_size)).maximal()
    return rule.certify(read_scores(scores, scorer.step.bounds), regions, exact=False)  # whether, not by how much
