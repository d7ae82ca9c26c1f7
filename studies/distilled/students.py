"""Students of score maps: networks that share each batch, and what others say about every position of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from bagcert.data import ArrayDataset
from bagcert.data.base import derive_seed
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.tensors import Images, Labels
from bagcert.threats import parse_threat
from bagcert.training.losses import TwoMaskLoss
from bagcert.training.optimizers import MuonConfig
from bagcert.training.schedule import set_rates
from studies.common.training import SCHEDULE
from studies.taught.teachers import half_precision

PATCH = "5x5"
FINE = 10**6  # parts of a training that have a learning rate of their own
Say = Callable[[Images], Tensor]  # the teacher: images to logits [b k i j]


@dataclass(frozen=True, eq=False)
class Student:
    """A network in training, and what it learns from labels: to win under the two worst masks of its own footprint."""

    name: str
    seed: int
    scorer: ResidualScorer
    loss: TwoMaskLoss
    optimizers: list[torch.optim.Optimizer]

    @classmethod
    def new(
        cls,
        name: str,
        config: ResidualConfig,
        dataset: ArrayDataset,
        seed: int,
        loss: TwoMaskLoss,
        device: torch.device,
    ) -> "Student":
        """With random weights, and with a loss against PATCH for its own footprint."""
        torch.manual_seed(derive_seed(seed, "weights"))
        scorer = config.build(dataset.image_size, dataset.mean, dataset.std)
        scorer.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        compile_on_gpu(scorer, device)  # without the loss: compiled together, its masks were wrong once
        fitted = loss.against(parse_threat(PATCH, dataset.image_size), scorer.footprint)
        assert isinstance(fitted, TwoMaskLoss)
        return cls(name, seed, scorer.train(), fitted, MuonConfig(lr=0.06).build(scorer))

    def scores(self, images: Images) -> Tensor:
        return half_precision(self.scorer, images)

    def learn(self, scores: Tensor, labels: Labels, wanted: Tensor | None, share: float, rate: float) -> Tensor:
        """One step; `share` of the loss is about the maps that are `wanted`, if any, the rest about labels.

        Only the last images of a batch have labels, if some are blended.
        """
        set_rates(self.optimizers, rate)
        known = scores[len(scores) - len(labels) :]
        found = self.loss(known, labels)
        if wanted is not None:
            found = share * map_loss(scores, wanted) + (1 - share) * found
        found.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return found.detach()


def compile_on_gpu(network: nn.Module, device: torch.device) -> None:
    """Every student and teacher has a graph of its own; by default, torch stops compiling after eight of one class."""
    if device.type == "cuda":
        torch._dynamo.config.recompile_limit = 64
        network.compile(dynamic=False)


def wanted_maps(said: Tensor | None, scores: Sequence[Tensor], peers: float) -> Tensor | None:
    """What students are to learn: what the teacher said, of which `peers` is replaced by what they say on average."""
    if peers == 0:
        return said
    agreed = torch.stack([each.detach() for each in scores]).mean(dim=0)
    return agreed if said is None else torch.lerp(said, agreed, peers)


def map_loss(scores: Tensor, said: Tensor) -> Tensor:
    """How far the scores are from the teacher's, position by position, as a share of the variance of the latter.

    We compare by how much each class exceeds the mean of all, since only such differences decide. A student that sees
    less than its teacher learns the mean of what the teacher says about everything that looks the same to it.
    """
    wanted = centered(said)
    return (centered(scores) - wanted).square().mean() / wanted.square().mean()


def centered(scores: Tensor) -> Tensor:
    return scores - scores.mean(dim=1, keepdim=True)


def rate_at(progress: float) -> float:
    """The share of the full learning rate, from 0 to 1 of the training."""
    return SCHEDULE.factor(int(progress * FINE), FINE)


def in_words(students: Sequence[Student], losses: Sequence[Tensor]) -> str:
    """The loss of each student, as a line of progress says it."""
    return "  ".join(f"{each.name} {loss.item():.4f}" for each, loss in zip(students, losses, strict=True))
