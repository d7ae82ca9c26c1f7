"""Clean and certified accuracy of a scorer in training, under the defense it is trained for."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from bagcert.data.base import Batch, Source
from bagcert.defense import Defense
from bagcert.distributed import World
from bagcert.scorers.base import Need, Scorer, evaluating
from bagcert.training.recipe import EvaluationConfig


@dataclass(frozen=True)
class Accuracy:
    """Shares of the images: classified correctly by the rule, and also certified."""

    clean: float
    certified: float
    images: int
    votes: float  # the mean number of classes with a positive score per position


def defense_of(scorer: Scorer, classes: tuple[str, ...], config: EvaluationConfig, world: World) -> Defense:
    """The defense that a recipe evaluates. Each process runs its part of a batch."""
    batch_size = max(1, config.batch_size // world.size)
    return Defense.build(scorer, config.rule, config.patch, classes, batch_size)


@torch.no_grad()
def validate(
    scorer: Scorer,
    weights: Mapping[str, Tensor] | None,
    source: Source,
    classes: tuple[str, ...],
    config: EvaluationConfig,
    world: World,
) -> Accuracy:
    """Certify images of `source`, with `weights` if given, else the scorer's own. The scorer is left as it was."""
    own = {name: value.clone() for name, value in scorer.state_dict().items()} if weights is not None else None
    if weights is not None:
        scorer.load_state_dict(weights)
    counts = torch.zeros(4, dtype=torch.int64, device=world.device)
    with evaluating(scorer):
        defense = defense_of(scorer, classes, config, world)
        size = defense.batch_size * world.size
        batches = source.batches(size, world.device, shard=world.shard)
        for batch in islice(batches, -(-config.images // size) if config.images else None):
            if len(batch.labels):
                counts += count(defense, batch)
    if own is not None:
        scorer.load_state_dict(own)
    total, clean, certified, votes = world.sum(counts).tolist()
    rows, columns = defense.scorer.footprint.grid
    return Accuracy(clean / total, certified / total, total, votes / (total * rows * columns))


def count(defense: Defense, batch: Batch) -> Tensor:
    """Counts of one batch: images, correct ones, correct and certified ones, positive scores."""
    # In the precision of training: the certificates hold for these very scores, and weights stay comparable.
    with torch.autocast(batch.images.device.type, dtype=torch.bfloat16, enabled=batch.images.is_cuda):
        scores = defense.scores(batch.images, Need.PROOF)
    certificate = defense.certify_integers(scores, exact=False)  # whether, not by how much
    right = certificate.predicted == batch.labels
    if defense.rule.detects and certificate.alert is not None:
        right &= ~certificate.alert
    proven = right & defense.rule.proven(certificate)
    return torch.stack([torch.ones_like(right).sum(), right.sum(), proven.sum(), (scores.values > 0).sum()])
