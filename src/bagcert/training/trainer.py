"""One training step, and all state that a step changes."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from bagcert.data.augment import Augmentation
from bagcert.data.base import Batch, Dataset, Source, derive_seed
from bagcert.distributed import World
from bagcert.errors import UsageError
from bagcert.scorers.base import BuiltScorer
from bagcert.tensors import Images, Labels
from bagcert.threats import parse_threat
from bagcert.training.initial_weights import foreign_weights, freeze, take_weights
from bagcert.training.losses import LOSSES, Loss
from bagcert.training.recipe import Recipe
from bagcert.training.schedule import set_rates
from bagcert.training.sync import share_norms


class Average:
    """The exponential average of all weights and batch-norm statistics of a scorer.

    Statistics are averaged along with the weights, since those of a single step do not belong to the averaged weights.
    """

    def __init__(self, scorer: nn.Module, decay: float) -> None:
        self.decay = decay
        self.source = scorer.state_dict(keep_vars=False)
        self.values = {name: value.clone() for name, value in self.source.items()}
        self._float = [name for name, value in self.values.items() if value.is_floating_point()]

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the weights after `step` (from 0). Early steps weigh more, so that the start is soon forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        values: list[Tensor] = [self.values[name] for name in self._float]
        torch._foreach_lerp_(values, [self.source[name] for name in self._float], 1 - decay)
        for name, value in self.values.items():
            if name not in self._float:
                value.copy_(self.source[name])


LEAST_STRIDED = 16  # channels in a block of oneDNN with AVX-512; 8 with AVX2


def build_scorer(recipe: Recipe, dataset: Dataset) -> BuiltScorer:
    """The recipe's network, built for the data set and the patch."""
    network = recipe.network
    for key, expected in (("classes", len(dataset.classes)), ("channels", dataset.channels)):
        if getattr(network, key) != expected:
            raise UsageError(
                f"The data set {recipe.data.name} needs network.{key} = {expected}, not {getattr(network, key)}. "
                f"Add --set network.{key}={expected}."
            )
    scorer = network.build(dataset.image_size, dataset.mean, dataset.std)
    return scorer.trained_for(parse_threat(recipe.evaluation.patch, dataset.image_size))


def fitted_loss(scorer: BuiltScorer, loss: Loss, patch: str) -> Loss:
    """The loss against this patch. One that does not read what the network returns in training is refused."""
    fitting = [name for name, kind in LOSSES.items() if scorer.trains in kind.reads]
    if not fitting:
        raise UsageError(
            f"No loss reads {scorer.trains}, which this network returns. Train each of its networks by itself."
        )
    if scorer.trains not in loss.reads:
        raise UsageError(
            f"The loss '{loss.name}' does not read {scorer.trains}, which this network returns in training. "
            f"Add --set loss.name={' or '.join(fitting)}."
        )
    return loss.against(parse_threat(patch, scorer.footprint.image_size), scorer.footprint)


def check_strides(scorer: BuiltScorer, device: torch.device) -> None:
    """Refuse what oneDNN 3 gets wrong: the gradient of a strided 1x1 convolution of few channels_last channels.

    It writes past its workspace (uxlfoundation/oneDNN issue 6035), after which the process may or may not crash.
    """
    for name, layer in scorer.named_modules():
        small = isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.in_channels < LEAST_STRIDED
        if device.type == "cpu" and small and layer.stride != (1, 1):
            raise UsageError(
                f"On a CPU, a strided 1x1 convolution needs at least {LEAST_STRIDED} input channels, but {name} has "
                f"{layer.in_channels}. Set a larger network.width, or train on a GPU."
            )


class Objective(nn.Module):
    """The loss of a batch as one module, so that it is compiled and distributed as a whole."""

    def __init__(self, scorer: BuiltScorer, loss: Loss) -> None:
        super().__init__()
        self.scorer = scorer
        self.loss = loss

    def forward(self, images: Images, labels: Labels) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
            scores = self.loss.scores(self.scorer, images, labels)
        return self.loss(scores, labels.repeat(len(scores) // len(labels)))  # once per member of an ensemble


class Trainer:
    """A scorer in training. All randomness of a step follows from the seed and the step's number."""

    def __init__(self, recipe: Recipe, dataset: Dataset, source: Source, seed: int, world: World) -> None:
        self.recipe, self.source, self.seed, self.world = recipe, source, seed, world
        self.steps_per_epoch = len(source) // recipe.training.batch_size
        if not self.steps_per_epoch:
            raise UsageError(
                f"The value of training.batch_size must be at most {len(source)}, the number of images, "
                f"but is {recipe.training.batch_size}."
            )
        torch.manual_seed(derive_seed(seed, "weights"))
        start, weights = recipe.training.start, recipe.training.weights
        self.foreign = foreign_weights(recipe.network, weights) if weights else None
        self.scorer = build_scorer(recipe, dataset)
        self.start = take_weights(self.scorer, start) if start else None
        if recipe.training.freeze:
            freeze(self.scorer)
        self.loss = fitted_loss(self.scorer, recipe.loss, recipe.evaluation.patch)
        check_strides(self.scorer, world.device)
        if world.size > 1:
            share_norms(self.scorer, world)
        self.scorer.to(device=world.device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizers = recipe.optimizer.build(self.scorer)
        average = recipe.training.average
        self.average = Average(self.scorer, average) if average else None
        self.objective = self._objective()

    def _objective(self) -> nn.Module:
        objective: nn.Module = Objective(self.scorer, self.loss)
        if self.world.size > 1:
            objective = DistributedDataParallel(objective)
        if self.world.device.type == "cuda":
            objective.compile(dynamic=False)
        return objective

    def batches(self, step: int) -> Iterator[Batch]:
        """All batches from `step` on, epoch after epoch, without end."""
        data = self.recipe.data
        augment = Augmentation(flip=data.flip, crop_padding=data.crop_padding)
        while True:
            epoch, start = divmod(step, self.steps_per_epoch)
            for batch in self.source.batches(
                self.recipe.training.batch_size,
                self.world.device,
                epoch_seed=derive_seed(self.seed, "epoch", epoch),
                start=start,
                drop_last=True,
                augment=augment,
                shard=self.world.shard,
            ):
                yield batch
                step += 1

    def step(self, step: int, steps: int, batch: Batch) -> Tensor:
        """Take step number `step` of `steps`. The loss stays on the device, so that nothing waits for it."""
        torch.manual_seed(derive_seed(self.seed, "step", step))
        self.scorer.begin_step(step / steps)
        set_rates(self.optimizers, self.recipe.schedule.factor(step, steps))
        loss: Tensor = self.objective(batch.images, batch.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if self.average is not None:
            self.average.update(step)
        return loss.detach()

    def weights(self) -> dict[str, Tensor]:
        """The weights to evaluate and keep: the average if there is one."""
        return self.average.values if self.average is not None else self.scorer.state_dict()

    def state(self) -> dict[str, Tensor]:
        """Everything that a checkpoint holds, by name."""
        tensors = {f"scorer/{name}": value for name, value in self.scorer.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average/{name}": value for name, value in self.average.values.items()}
        for name, moments in self._moments().items():
            tensors |= {f"optimizer/{name}/{key}": value for key, value in moments.items()}
        return tensors

    def load_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore a `state()`, in place, so that compiled code stays valid."""
        kept: dict[str, dict[str, Tensor]] = {"scorer": {}, "average": {}, "optimizer": {}}
        for path, value in tensors.items():
            part, _, name = path.partition("/")
            kept[part][name] = value
        self.scorer.load_state_dict(kept["scorer"])
        if self.average is not None:
            for name, value in kept["average"].items():
                self.average.values[name].copy_(value)
        parameters = dict(self.scorer.named_parameters())
        owners = {id(p): o for o in self.optimizers for group in o.param_groups for p in group["params"]}
        for optimizer in self.optimizers:
            optimizer.state.clear()
        for path, value in kept["optimizer"].items():
            name, _, key = path.rpartition("/")
            parameter = parameters[name]
            like = torch.empty_like(parameter) if value.dim() else torch.empty_like(value, device=parameter.device)
            owners[id(parameter)].state[parameter][key] = like.copy_(value)

    def _moments(self) -> dict[str, dict[str, Any]]:
        names = {id(parameter): name for name, parameter in self.scorer.named_parameters()}
        return {
            names[id(parameter)]: moments
            for optimizer in self.optimizers
            for parameter, moments in optimizer.state.items()
        }
