"""Students of score maps: networks that share each batch, and what one teacher says about every position of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

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
from studies.distilled.thinned import Thinned, thin_window
from studies.taught.teachers import half_precision

PATCH = "5x5"
FINE = 10**6  # parts of a training that have a learning rate of their own
Say = Callable[..., Tensor]  # the teacher: images, and the phase if it is thinned, to logits [b k i j]


@dataclass(frozen=True, eq=False)
class Student:
    """A network in training, and what it learns from labels: to win under the two worst masks of its own footprint."""

    name: str
    scorer: ResidualScorer
    network: nn.Module  # the scorer, or what is trained of it
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
        thinned: bool = False,
    ) -> "Student":
        """With random weights, and with a loss against PATCH for its own footprint."""
        torch.manual_seed(derive_seed(seed, "weights"))
        scorer = config.build(dataset.image_size, dataset.mean, dataset.std)
        scorer.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        network: nn.Module = Thinned(scorer) if thinned else scorer
        if device.type == "cuda":
            network.compile(dynamic=False)  # without the loss: compiled together, its masks were wrong once
        fitted = loss.against(parse_threat(PATCH, dataset.image_size), scorer.footprint)
        assert isinstance(fitted, TwoMaskLoss) and isinstance(fitted.window, tuple)
        if thinned:
            fitted = replace(fitted, window=thin_window(fitted.window))
        return cls(name, scorer, network.train(), fitted, MuonConfig(lr=0.06).build(scorer))

    def learn(
        self,
        images: Images,
        labels: Labels,
        said: Tensor | None,
        share: float,
        rate: float,
        at: tuple[Tensor, ...] = (),
    ) -> Tensor:
        """One step; `share` of the loss is about what the teacher said, if it said anything, the rest about labels.

        `at` is the phase of a thinned network.
        """
        set_rates(self.optimizers, rate)
        scores = half_precision(self.network, images, *at)
        found = self.loss(scores, labels)
        if said is not None:
            found = share * map_loss(scores, said) + (1 - share) * found
        found.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return found.detach()


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
