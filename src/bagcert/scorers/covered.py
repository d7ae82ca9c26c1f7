"""Any classifier of whole images, covered by masks: a ResNet, a ViT, whatever maps images to logits."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from bagcert.config import Key
from bagcert.errors import UsageError, unknown_name
from bagcert.program import DTYPES, full_precision
from bagcert.scorers.base import OWN, Channels, Classes, HandedConfig, Normalize
from bagcert.scorers.double_masking import DoubleMasking
from bagcert.scorers.views import Hidden, HiddenSets, HidingConfig
from bagcert.tensors import Images
from bagcert.threats.probe import bits, copied, own_scores
from bagcert.threats.state import unchanged
from bagcert.threats.threat import Size, Threat
from bagcert.threats.tracing import example_weight

ON_CPU = 32  # masked images per pass
MOST = 2**10
FEW = 8  # images to measure the memory of a pass with


@dataclass(frozen=True)
class CoverConfig(HidingConfig, HandedConfig):
    """The masks, and how the caller's classifier is run under them."""

    name: ClassVar[str] = "cover"
    classes: Classes = 10
    channels: Channels = 3
    masks: Annotated[int, Key("masks along each axis, at most", least=1, most=32)] = 6
    fill: Annotated[tuple[float, ...], Key("color of a masked pixel, one number per channel", least=0, most=1)] = (0.5,)
    at_once: Annotated[int, Key("masked images in each pass", least=1, most=2**14)] = ON_CPU
    dtype: Annotated[str, Key("float32, or bfloat16 by autocast")] = "float32"
    compiled: Annotated[bool, Key("run by torch.compile")] = False
    mean: Annotated[tuple[float, ...], Key("of its channels, for pixels in 0..1; none: that of the data", 0, 1)] = ()
    std: Annotated[tuple[float, ...], Key("of its channels; none: that of the data", 1e-6, 1e3)] = ()
    given: Annotated[int, Key("masks of the caller's own instead, stored with the weights", least=0, most=MOST)] = 0

    def __post_init__(self) -> None:
        if min(self.classes - 1, self.channels) < 1:
            raise UsageError("The network must have at least 2 classes and 1 channel, but has fewer.")
        for value, least, most, words in (
            (self.masks, 1, 32, "masks"),
            (self.at_once, 1, 2**14, "images per pass"),
            (self.given, 0, MOST, "given masks"),
        ):
            if type(value) is not int or not least <= value <= most:
                raise UsageError(f"The number of {words} must lie in {least}..{most:,}, but is {value!r}.")
        if len(self.fill) not in (1, self.channels) or not all(0 <= value <= 1 for value in self.fill):
            raise UsageError(
                f"The fill must be 1 or {self.channels} numbers in 0..1, like pixels, but is {list(self.fill)}."
            )
        if self.dtype not in ("float32", "bfloat16"):
            raise unknown_name("dtype", str(self.dtype), ["float32", "bfloat16"])

    def build(self, image_size: tuple[int, int], mean: Sequence[float], std: Sequence[float]) -> "CoverScorer":
        network = self.need_network().eval()
        check_classifier(network, self, image_size)
        scorer = CoverScorer(network, self, image_size, self.mean or mean, self.std or std)
        return scorer.to(example_weight(network).device).train()


class CoverScorer(DoubleMasking):
    """The caller's classifier under masks; `DoubleMasking` has the proofs.

    Masked pixels take the color of the fill before the network sees them, so whatever the network does with the image,
    nothing of them is left. On a GPU convolutions may run by cuDNN, which a network of positions must not: here no
    score has to stay in its place. TF32 stays off, since with it logits depend on the position in the batch.
    """

    config: CoverConfig
    fill: Tensor
    given: Tensor  # bool [n h w], the caller's own masks; n = 0: rectangles

    def __init__(
        self, network: nn.Module, config: CoverConfig, image_size: Size, mean: Sequence[float], std: Sequence[float]
    ) -> None:
        super().__init__()
        self.config = config
        self.normalize = Normalize(mean, std, config.channels)
        self.register_module(OWN, network)
        self.register_buffer("fill", torch.empty(config.channels, 1, 1), persistent=False)
        self.fill.copy_(torch.tensor(config.fill).view(-1, 1, 1))
        none = torch.zeros(config.given, *image_size, dtype=torch.bool)
        self.register_buffer("given", none, persistent=config.given > 0)  # its masks are stored as its weights are
        self.__dict__["_compiled"] = None  # no part of the scorer: its weights are those of the network
        self.hide(self.rectangles((1, 1), image_size))  # until it faces a threat

    @property
    def at_once(self) -> int:
        return self.config.at_once

    def trained_for(self, threat: Threat) -> DoubleMasking:
        return self.facing(threat)

    def against(self, threat: Threat) -> Hidden:
        if not self.config.given:
            return super().against(threat)
        hidden = HiddenSets(self.given.cpu().clone())  # else other weights would change them, but not the footprint
        hidden.need(threat)
        return hidden

    @property
    def own_program(self) -> dict[str, Any]:
        known: dict[str, Any] = {"batch": self.config.at_once, "compiled": self.config.compiled}
        if self.config.dtype != "float32":
            known["dtype"] = self.config.dtype
        by_cudnn = self.fill.is_cuda and self.config.dtype == "float32"
        return known | ({"cudnn": True} if by_cudnn else {})

    def classify(self, images: Images, masks: Tensor) -> Tensor:
        shown = self.normalize(torch.where(masks[:, None], self.fill, images))
        if self.training:  # by the program of the training
            return getattr(self, OWN)(shown).float()  # type: ignore[no-any-return]
        with ExitStack() as settings:
            if self.config.dtype != "float32":
                settings.enter_context(torch.autocast(images.device.type, DTYPES[self.config.dtype]))
            if images.is_cuda:
                flags = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
                settings.enter_context(flags)
            return self._network(images)(shown).float()

    def _network(self, images: Images) -> Callable[[Images], Tensor]:
        """The network, compiled if asked for; attacks need gradients, and take it as it is."""
        network: nn.Module = getattr(self, OWN)
        if not self.config.compiled or torch.is_grad_enabled() or torch.compiler.is_exporting():
            return network
        if self.__dict__["_compiled"] is None:
            self.__dict__["_compiled"] = torch.compile(network, dynamic=False)
        return self.__dict__["_compiled"]  # type: ignore[no-any-return]

    def __getstate__(self) -> dict[str, Any]:
        """For copies: without what was compiled, which belongs to this network on this device."""
        return {**self.__dict__, "_compiled": None}


@torch.no_grad()
@full_precision()
def check_classifier(network: nn.Module, config: CoverConfig, image_size: Size) -> None:
    """Refuse a network whose logits are no function of the image: other ones later, or beside other images.

    It is run as a defense runs it, in passes of `at_once` images. This samples: `bagcert audit` asks more.
    """
    if any(module.training for module in network.modules()):
        raise UsageError("The network is in training mode. Call network.eval() first.")
    network = copied(network).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    like = example_weight(network)
    draw = torch.Generator().manual_seed(2)
    images = torch.rand(config.at_once, config.channels, *image_size, generator=draw).to(like)
    with unchanged(network):
        few = images[:2]
        found = own_scores(network, few)
    if found.dim() != 2 or len(found) != len(few):
        raise UsageError(
            f"The network must map {len(few)} images to logits [{len(few)}, classes], but gives {list(found.shape)}. "
            "Wrap it so that it returns the logits alone."
        )
    config.need_classes(found.shape[1])
    tried = replace(config, compiled=config.compiled and like.is_cuda)  # before the move to a GPU, not by its program
    scorer = CoverScorer(network, tried, image_size, (0.0,), (1.0,)).to(like.device)
    masks = torch.zeros(len(images), *image_size, dtype=torch.bool, device=like.device)
    order = torch.randperm(len(images), generator=draw).to(like.device)
    moved = images[order]
    moved[len(images) // 2 + 1 :] = 0  # an image that stays has another place, and other images beside it
    kept = order[: len(images) // 2 + 1]
    before, after = bits(scorer.classify(images, masks)), bits(scorer.classify(moved, masks))
    if not torch.equal(before[kept], after[: len(kept)]):
        raise UsageError(
            "The network gives an image other logits beside other images, or later, so no proof about it would hold. "
            "Remove noise, memory and what mixes images, or choose another at_once (a power of 2) or float32."
        )


def fitting_pass(network: nn.Module, channels: int, image_size: Size) -> int:
    """How many images a pass may have: as many as half of the free memory of a GPU holds, a power of 2."""
    like = example_weight(network)
    if like.device.type != "cuda":
        return ON_CPU
    torch.cuda.reset_peak_memory_stats(like.device)
    before = torch.cuda.memory_allocated(like.device)
    with torch.no_grad():
        own_scores(network, torch.zeros(FEW, channels, *image_size).to(like))
    each = max(1, (torch.cuda.max_memory_allocated(like.device) - before) // FEW)
    free = torch.cuda.mem_get_info(like.device)[0]
    return int(min(MOST, max(1, 2 ** ((free // 2 // each).bit_length() - 1))))
