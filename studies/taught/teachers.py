"""Teachers: ordinary networks that see the whole image, each trained without one quarter of the training images.

A teacher repeats the labels of the images that it was trained on. What it says about the others is news: which images
are hard, and what they are confused with. So every image is taught by the teacher that has not seen it. Validation and
generated images were seen by none, and are taught by the mean of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import typer
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.data import ArrayDataset, ArraySource, Augmentation
from bagcert.data.base import derive_seed, training_positions
from bagcert.pictures.framing import to_unit
from bagcert.scorers.base import Normalize
from bagcert.training.optimizers import MuonConfig
from bagcert.training.schedule import set_rates
from studies.common.training import SCHEDULE

FOLDS = 4
HOLE = 8  # side of the square that is cut out of each training image, in pixels
SMOOTHING = 0.1


@dataclass(frozen=True)
class Size:
    """How large teachers are, and how long they learn."""

    widths: tuple[int, int, int, int] = (64, 128, 256, 512)
    epochs: int = 18
    batch: int = 500


def convolution(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.GELU())


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.path = nn.Sequential(convolution(width, width), convolution(width, width))

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = features + self.path(features)
        return result


class Teacher(nn.Module):
    """Images [b c h w] to logits [b k]."""

    def __init__(self, dataset: ArrayDataset, widths: Sequence[int]) -> None:
        super().__init__()
        self.normalize = Normalize(dataset.mean, dataset.std, dataset.channels)
        layers: list[nn.Module] = [convolution(dataset.channels, widths[0])]
        for before, after in pairwise(widths):
            layers += [convolution(before, after), nn.MaxPool2d(2), Residual(after)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1], len(dataset.classes))

    def forward(self, images: Tensor) -> Tensor:
        features = self.normalize(images)
        features = self.body(with_holes(features) if self.training else features)
        logits: Tensor = self.head(features.amax(dim=(2, 3)))
        return logits


def with_holes(images: Tensor) -> Tensor:
    """Each image without a square around a random pixel."""
    near = []
    for length in images.shape[2:]:
        center = torch.randint(length, (len(images), 1), device=images.device)
        near.append(2 * (torch.arange(length, device=images.device) - center).abs() <= HOLE)
    return images.masked_fill(near[0][:, None, :, None] & near[1][:, None, None, :], 0)


def folds(labels: Tensor) -> Tensor:
    """By image the number of the teacher that does not see it; -1: a validation image, which none sees."""
    positions = training_positions("train", labels)
    found = torch.full((len(labels),), -1)
    found[positions] = torch.arange(len(positions)) % FOLDS
    return found


def train_teacher(dataset: ArrayDataset, fold: int, size: Size, device: torch.device) -> Teacher:
    own = folds(dataset.train.labels)
    source = ArraySource(dataset.train, ((own >= 0) & (own != fold)).nonzero()[:, 0])
    torch.manual_seed(derive_seed("teacher", fold))
    teacher = Teacher(dataset, size.widths)
    teacher.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizers = MuonConfig(lr=0.06).build(teacher)
    batch = min(size.batch, len(source))
    steps, step = size.epochs * (len(source) // batch), 0
    for epoch in range(size.epochs):
        seed = derive_seed("teacher", fold, epoch)
        for each in source.batches(batch, device, epoch_seed=seed, drop_last=True, augment=Augmentation()):
            set_rates(optimizers, SCHEDULE.factor(step, steps))
            logits = half_precision(teacher, each.images)
            F.cross_entropy(logits, each.labels, label_smoothing=SMOOTHING).backward()  # type: ignore[no-untyped-call]
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            step += 1
    return teacher.eval()


def half_precision(network: nn.Module, images: Tensor) -> Tensor:
    """Its float32 output; on a GPU it computes in bfloat16."""
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
        output: Tensor = network(images)
    return output.float()


@torch.no_grad()
def probabilities(teacher: Teacher, images: Tensor, device: torch.device) -> Tensor:
    """Of each class, for images uint8 [n c h w] and their mirror images on average: [n k] on the CPU."""
    found = []
    for start in range(0, len(images), 1000):
        shown = to_unit(images[start : start + 1000].to(device))
        views = [half_precision(teacher, view).softmax(dim=1) for view in (shown, shown.flip(-1))]
        found.append(torch.stack(views).mean(dim=0).cpu())
    return torch.cat(found)


def teach(dataset: ArrayDataset, others: Tensor, size: Size, device: torch.device) -> tuple[Tensor, Tensor]:
    """What teachers that have not seen them say about all training images, and about the others: [n k] each."""
    own = folds(dataset.train.labels)
    about, about_others = [], []
    for fold in range(FOLDS):
        teacher = train_teacher(dataset, fold, size, device)
        typer.echo(f"teacher {fold + 1} of {FOLDS}", err=True)
        about.append(probabilities(teacher, dataset.train.images, device))
        about_others.append(
            probabilities(teacher, others, device) if len(others) else torch.empty(0, len(dataset.classes))
        )
    every = torch.stack([*about, torch.stack(about).mean(dim=0)])  # the mean comes last: -1 picks it
    return every[own, torch.arange(len(own))], torch.stack(about_others).mean(dim=0)
