"""Students: residual networks trained for the rule two-mask, on images and targets from several sources."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from bagcert.data import ArrayDataset, ArraySource, Augmentation, Batch
from bagcert.data.base import derive_seed
from bagcert.errors import UsageError
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.tensors import Labels, Scores
from bagcert.threats import parse_threat
from bagcert.training.losses import TwoMaskLoss, greedy_mask
from bagcert.training.optimizers import MuonConfig
from bagcert.training.schedule import set_rates
from studies.common.training import SCHEDULE
from studies.taught.teachers import half_precision

TAUGHT = 0.5  # share of the teacher in the targets; the rest is the label
SMOOTHING = 0.1  # of the labels
MASKED = 0.75  # share of the masked loss; the rest is unmasked
LINES = 20  # that say how far a network is


@dataclass(frozen=True, eq=False)
class Part:
    """So many images of each batch come from this source."""

    source: ArraySource
    targets: Tensor  # [n k]
    count: int

    @staticmethod
    def of(source: ArraySource, said: Tensor, count: int) -> "Part":
        """`said` [n k] are the probabilities of teachers."""
        if count > len(source):
            raise UsageError(f"A batch takes {count} images of a source that has {len(source)}. Add more images.")
        hard = F.one_hot(source.labels, said.shape[1]) * (1 - SMOOTHING) + SMOOTHING / said.shape[1]
        return Part(source, (1 - TAUGHT) * hard + TAUGHT * said, count)

    def batches(self, seed: int, device: torch.device) -> Iterator[Batch]:
        """Epoch after epoch, without end."""
        epoch = 0
        while True:
            order = derive_seed(seed, "epoch", epoch, len(self.source))
            yield from self.source.batches(self.count, device, epoch_seed=order, drop_last=True, augment=Augmentation())
            epoch += 1


def taught_loss(scores: Scores, labels: Labels, targets: Tensor, window: tuple[int, int]) -> Tensor:
    """As the package's loss `two-mask`, but for targets [b k] instead of labels; these still choose the masks."""
    kept = greedy_mask(scores.detach(), labels, window, TwoMaskLoss.masks)
    masked = (scores * kept).sum(dim=(2, 3)) / kept.sum(dim=(2, 3))
    plain = scores.mean(dim=(2, 3))
    return MASKED * F.cross_entropy(masked, targets) + (1 - MASKED) * F.cross_entropy(plain, targets)


def train_student(
    config: ResidualConfig, dataset: ArrayDataset, parts: Sequence[Part], steps: int, seed: int, device: torch.device
) -> ResidualScorer:
    torch.manual_seed(derive_seed(seed, "weights"))
    scorer = config.build(dataset.image_size, dataset.mean, dataset.std)
    scorer.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    loss = TwoMaskLoss().against(parse_threat("5x5", dataset.image_size), scorer.footprint)
    assert isinstance(loss, TwoMaskLoss)
    if device.type == "cuda":
        scorer.compile(dynamic=False)  # without the loss, whose masks were wrong when they were compiled together
    optimizers = MuonConfig(lr=0.06).build(scorer)
    streams = [part.batches(seed, device) for part in parts]
    targets = [part.targets.to(device) for part in parts]
    scorer.train()
    for step in range(steps):
        set_rates(optimizers, SCHEDULE.factor(step, steps))
        batches = [next(stream) for stream in streams]
        wanted = torch.cat([each[batch.index] for each, batch in zip(targets, batches, strict=True)])
        labels = torch.cat([batch.labels for batch in batches])
        scores = half_precision(scorer, torch.cat([batch.images for batch in batches]))
        found = taught_loss(scores, labels, wanted, loss.window)
        found.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % max(1, steps // LINES) == 0:
            typer.echo(f"step {step + 1}/{steps}  loss {found.item():.4f}", err=True)
    return scorer.eval()
