"""A residual network whose features lie in one matrix, in bfloat16 or fp8: which products follow each other."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bagcert.errors import UsageError
from bagcert.scorers.residual import Block, ResidualScorer
from bagcert.tensors import Images
from benchmarks.kernels.layout import Layout

FP8 = torch.float8_e4m3fn
LARGEST = 448.0  # that fp8 holds


@dataclass(frozen=True, eq=False)
class Product:
    """A convolution on features that are stored as multiples of `unit`; its result is multiplied by `scale`."""

    weight: Tensor  # [after taps*before], in the type of the features
    scale: Tensor  # float32 [after]
    bias: Tensor  # float32 [after]
    taps: int
    relu: bool = True


@dataclass(frozen=True, eq=False)
class Features:
    """The same features twice: `wide` in bfloat16 for sums, `narrow` for products. In bfloat16 one is both."""

    wide: Tensor | None
    narrow: Tensor | None


@dataclass(frozen=True, eq=False)
class After:
    """What is done with a product before it is stored."""

    wide: bool = False  # whether it is stored for sums
    unit: float | None = None  # in which unit it is stored for the next product, if at all
    dtype: torch.dtype = torch.bfloat16  # of that product's features
    residual: Tensor | None = None  # added before the ReLU, [rows after]
    positions: Tensor | None = None  # added after it, float32 [each after], zero where no position is


Multiply = Callable[[Tensor, Product, Layout, After], Features]


def quantized(values: Tensor, dtype: torch.dtype, unit: float) -> Tensor:
    """Multiples of a unit in fp8; bfloat16 as it is."""
    if dtype != FP8:
        return values.to(dtype)
    return (values.float() / unit).clamp(-LARGEST, LARGEST).to(dtype)


def multiply_plainly(features: Tensor, product: Product, layout: Layout, after: After) -> Features:
    """The plain twin of the kernel: sums in float32."""
    before = features.shape[1]
    far = layout.line + 1
    padded = F.pad(features.float(), (0, 0, far, far))
    weights = torch.split(product.weight.float(), before, dim=1)
    total = torch.zeros(layout.rows, len(product.weight), device=features.device)
    for move, weight in zip(layout.moves(product.taps), weights, strict=True):
        total += padded[far + move : far + move + layout.rows] @ weight.T
    total = total * product.scale + product.bias
    if after.residual is not None:
        total += after.residual.float()
    if product.relu:
        total = total.relu()
    if after.positions is not None:
        total += after.positions.repeat(layout.images, 1)
    total = torch.where(layout.real(total.device)[:, None], total, 0)
    narrow = None if after.unit is None else quantized(total, after.dtype, after.unit)
    return Features(total.to(torch.bfloat16) if after.wide else None, narrow)


@dataclass(frozen=True, eq=False)
class Path:
    """Two convolutions in a row, with the unit of what lies between them."""

    first: Product
    between: float
    second: Product


@dataclass(frozen=True, eq=False)
class Stage:
    """A block whose input comes in `unit`. Its paths are added to the shortcut one by one; the last has the ReLU."""

    unit: float
    shortcut: Product | None
    paths: list[Path]


class FlatNetwork:
    """The logits of a folded residual network, by products of matrices.

    A row of a product depends on the rows that its taps name and on no other, whatever the batch: a score sees its
    window alone, as in the network itself. What exceeds the range of fp8 saturates, which changes nothing in this.
    """

    def __init__(
        self, scorer: ResidualScorer, dtype: torch.dtype, seen: dict[nn.Module, float], multiply: Multiply
    ) -> None:
        if set(scorer.config.block_strides) != {1} or any(kernel not in (1, 3) for kernel in scorer.config.kernels):
            raise UsageError("Only kernels of 1x1 and 3x3 at stride 1 become products. Name another network.")
        self.scorer, self.dtype, self.multiply = scorer, dtype, multiply
        self.stem = stem_product(convolution(scorer.stem))
        self.stages = [self._stage(block, seen) for block in scorer.blocks if isinstance(block, Block)]

    def _stage(self, block: Block, seen: dict[nn.Module, float]) -> Stage:
        paths = [convolutions(path) for path in (block.first, block.second) if path is not None]
        unit = max(self._unit(seen[first]) for first, _ in paths)
        share = 1 / len(paths)
        found = [
            Path(
                self._product([first], unit),
                between := self._unit(seen[second]),
                self._product([second], between, share, relu=number == len(paths)),
            )
            for number, (first, second) in enumerate(paths, start=1)
        ]
        if len(paths) == 2 and paths[0][0].kernel_size == paths[0][1].kernel_size:  # as wide as both, in one go
            firsts, seconds = zip(*paths, strict=True)
            between = max(self._unit(seen[second]) for second in seconds)
            found = [Path(self._product(firsts, unit), between, self._product(seconds, between, share, inner=True))]
        shortcut = None
        if isinstance(block.shortcut, nn.Sequential):
            shortcut = self._product([convolution(block.shortcut)], unit, relu=False)
        return Stage(unit, shortcut, found)

    def _unit(self, largest: float) -> float:
        return largest / LARGEST if self.dtype == FP8 else 1.0

    def _product(
        self, convs: Iterable[nn.Conv2d], unit: float, share: float = 1.0, relu: bool = True, inner: bool = False
    ) -> Product:
        """Convolutions side by side; `inner`: their inputs lie side by side, and their results are added."""
        own = list(convs)
        weights = [conv.weight.detach().double().permute(0, 2, 3, 1).flatten(1) * share for conv in own]
        biases = [bias_of(conv).double() * share for conv in own]
        weight = torch.cat(weights, dim=1 if inner else 0)
        bias = torch.stack(biases).sum(dim=0) if inner else torch.cat(biases)
        units = weight.abs().amax(dim=1).clamp(min=1e-12) / LARGEST if self.dtype == FP8 else torch.ones_like(bias)
        stored = quantized(weight / units[:, None], self.dtype, 1.0).contiguous()
        taps = own[0].kernel_size[0] * own[0].kernel_size[1]
        return Product(stored, (units * unit).float(), bias.float(), taps, relu)

    def __call__(self, images: Images, positions: Tensor | None) -> Tensor:
        """Like `ResidualScorer._logits`."""
        scorer, layout = self.scorer, Layout(len(images), *images.shape[2:])
        table = None if positions is None else Layout(1, *images.shape[2:]).spread(positions[None].float())
        units = [*(stage.unit for stage in self.stages), None]
        endings = [
            After(True, unit, self.dtype, positions=table if number == scorer.complete else None)
            for number, unit in enumerate(units, start=-1)
        ]
        found = self.multiply(windows(scorer.normalize(images), layout), self.stem, layout, endings[0])
        for stage, ending in zip(self.stages, endings[1:], strict=True):
            found = self._pass(stage, found, layout, ending)
        assert found.wide is not None
        logits = found.wide @ scorer.head.weight.flatten(1).T.to(torch.bfloat16)
        assert scorer.head.bias is not None
        return layout.gathered(logits).float() + scorer.head.bias.float().view(-1, 1, 1)

    def _pass(self, stage: Stage, found: Features, layout: Layout, after: After) -> Features:
        """A block: all but the last path leave a wide sum for the next."""
        narrow, sums = found.narrow, found.wide
        assert narrow is not None
        if stage.shortcut is not None:
            sums = self.multiply(narrow, stage.shortcut, layout, After(wide=True)).wide
        for path in stage.paths:
            between = self.multiply(narrow, path.first, layout, After(False, path.between, self.dtype)).narrow
            assert between is not None
            ending = replace(after, residual=sums) if path.second.relu else After(wide=True, residual=sums)
            ended = self.multiply(between, path.second, layout, ending)
            sums = ended.wide
        return ended


SEEN, SEEN_AT_LEAST = 27, 32  # pixels and channels of a 3x3 window, and columns that transfers of 16 bytes want


def windows(images: Images, layout: Layout) -> Tensor:
    """What each position sees of the image, as one row, so that the first convolution is a product as well."""
    seen = F.unfold(images, 3, padding=1).view(layout.images, SEEN, layout.height, layout.width)
    return layout.spread(F.pad(seen, (0, 0, 0, 0, 0, SEEN_AT_LEAST - SEEN))).to(torch.bfloat16).contiguous()


def stem_product(conv: nn.Conv2d) -> Product:
    if conv.weight[0].numel() != SEEN:
        raise UsageError("Only networks of color images become products. Name another network.")
    weight = F.pad(conv.weight.detach().flatten(1), (0, SEEN_AT_LEAST - SEEN)).to(torch.bfloat16)
    return Product(weight, torch.ones(len(weight), device=weight.device), bias_of(conv).float(), 1)


def convolution(path: nn.Sequential) -> nn.Conv2d:
    (found,) = (layer for layer in path if isinstance(layer, nn.Conv2d))
    return found


def convolutions(path: nn.Sequential) -> tuple[nn.Conv2d, nn.Conv2d]:
    first, second = (layer for layer in path if isinstance(layer, nn.Conv2d))
    return first, second


def bias_of(conv: nn.Conv2d) -> Tensor:
    return torch.zeros(conv.out_channels, device=conv.weight.device) if conv.bias is None else conv.bias.detach()


@torch.no_grad()
def largest_inputs(scorer: ResidualScorer, images: Images) -> dict[nn.Module, float]:
    """The largest input of each convolution of a folded network on some training images: what fp8 is to hold."""
    seen: dict[nn.Module, float] = {}

    def note(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        seen[layer] = max(seen.get(layer, 0.0), float(inputs[0].abs().amax()))

    hooks = [layer.register_forward_pre_hook(note) for layer in scorer.modules() if isinstance(layer, nn.Conv2d)]
    try:
        scorer.logits(images)
    finally:
        for hook in hooks:
            hook.remove()
    return seen
