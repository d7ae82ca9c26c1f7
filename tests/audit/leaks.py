"""Scorers that break the promise of their footprint, each in one way."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bagcert.defense import Defense
from bagcert.scorers.base import Scorer
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.steps import score_step
from bagcert.threats import Footprint

SIZE = (12, 12)


class Planted(Scorer):
    """One layer from three channels to three classes, declared to see 3x3 pixels."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.step = score_step("logits")
        self.footprint = Footprint.centered(3, 1, SIZE, SIZE)

    def logits(self, images: Tensor) -> Tensor:
        scores: Tensor = self.layer(images)
        return scores


class FourierConvolution(nn.Module):
    """A 3x3 convolution by FFT: correct except for the last bits, which see the whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(3, 3, 3, 3))

    def forward(self, images: Tensor) -> Tensor:
        size = (SIZE[0] + 2, SIZE[1] + 2)
        product = torch.einsum(
            "bchw,kchw->bkhw", torch.fft.rfft2(images, s=size), torch.fft.rfft2(self.kernel.flip(2, 3), s=size)
        )
        scores: Tensor = torch.fft.irfft2(product, s=size)[:, :, 1:-1, 1:-1]
        return scores.contiguous()


class CountingImages(nn.Module):
    """Its scores depend on the number of images in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.scale * images + images.shape[0] / 1024


def trained_mode() -> Scorer:
    """Batch norm in training mode: every score sees every image."""
    scorer = ResidualScorer(ResidualConfig(classes=3, width=8, kernels=(1,), paths=1, shake=False, step="logits"), SIZE)
    return scorer.train()


def planted(layer: Callable[[], nn.Module]) -> Scorer:
    torch.manual_seed(0)
    return Planted(layer()).eval()


LEAKS: dict[str, Callable[[], Scorer]] = {
    "a 5x5 kernel declared as 3x3": lambda: planted(lambda: nn.Conv2d(3, 3, 5, padding=2)),
    "batch norm in training mode": trained_mode,
    "an FFT convolution": lambda: planted(FourierConvolution),
    "reflect padding": lambda: planted(lambda: nn.Conv2d(3, 3, 3, padding=1, padding_mode="reflect")),
    "the number of images": lambda: planted(CountingImages),
}


def leaking(name: str) -> Defense:
    return Defense.build(LEAKS[name](), "two-mask", "2x2", ("cat", "dog", "ship"))
