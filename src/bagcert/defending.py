"""From your own network to a defense in one call."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bagcert.config import write_config
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.rules import Rule
from bagcert.scorers.base import Scorer
from bagcert.scorers.covered import CoverConfig, fitting_pass
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Patch
from bagcert.threats.footprint import IntOrPair, pair
from bagcert.threats.threat import Size


def defend(
    network: nn.Module,
    image_size: IntOrPair,
    classes: Sequence[str] | None = None,
    patch: Patch = "5x5",
    rule: str | Rule = "two-mask",
    *,
    channels: int = 3,
    step: str = "logits",
) -> Defense:
    """Make a defense of your network, which maps images [b c h w] to scores of its classes at each position [b k i j].

    The network takes pixels in [0, 1] and is in evaluation mode. `wrap` traces and checks it, and says what `step` is.
    Classes without names are numbered.

    >>> import torch, bagcert
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1)).eval()
    >>> defense = bagcert.defend(network, image_size=12, classes=["cat", "dog"], patch="2x2")
    >>> defense
    Defense(Sequential, two-mask, 2x2 of 12x12, 2 classes)
    >>> len(defense.certify(torch.rand(4, 3, 12, 12)))
    4
    """
    need_evaluation(network)
    scorer = wrap(network, image_size, channels, step)
    if scorer.classes < 2:
        raise UsageError("The network scores 1 class. Give it at least 2: a single class has no rival.")
    return built(network, scorer, rule, patch, numbered(scorer.classes) if classes is None else classes)


def cover(
    network: nn.Module,
    image_size: IntOrPair,
    classes: Sequence[str] | int,
    patch: Patch = "2%",
    rule: str | Rule = "unanimous",
    *,
    masks: int | Tensor | np.ndarray = 6,
    mean: Sequence[float] = (0.0,),
    std: Sequence[float] = (1.0,),
    fill: Sequence[float] | None = None,
    channels: int = 3,
    framing: Framing | None = None,
    at_once: int | None = None,
    dtype: str = "float32",
    compiled: bool = False,
) -> Defense:
    """Make a defense of any classifier, a ResNet or a ViT, which maps images [b c h w] to logits [b k].

    The network sees each image with parts of it masked: by rectangles, up to `masks` along each axis, or by masks of
    your own, booleans [n, height, width] of any form; every placement of the patch must lie inside one of them. Rule
    "unanimous" recovers the class (PatchCleanser's double masking; all pairs of masks to certify, single masks to
    classify most images). Rule "detect" keeps the network's own answer and raises alerts, by single masks.
    `bagcert.scorers.double_masking` has the proofs. The network is used as it is; training it under masks makes it
    prove more.

    Pixels in [0, 1] are normalized by `mean` and `std` before the network sees them, and a masked pixel takes the color
    `fill`, by default the mean, or gray if there is none. `framing` says how pictures become images. `classes` are the
    names, or how many there are. Each pass takes `at_once` masked images: a certificate holds for passes of that size.
    By default it is what fits into memory.

    >>> import torch, bagcert
    >>> from torch import nn
    >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> defense = bagcert.cover(network.eval(), image_size=12, classes=["cat", "dog"], patch="2x2", masks=3)
    >>> defense
    Defense(Sequential, unanimous, 2x2 of 12x12, 2 classes)
    >>> len(defense.certify(torch.rand(4, 3, 12, 12)))
    4
    >>> defense.against(rule="detect").certify(torch.rand(4, 3, 12, 12)).alert.shape
    torch.Size([4])
    """
    need_evaluation(network)
    size = pair(image_size)
    if not isinstance(channels, int) or min(*size, channels) < 1:
        raise UsageError(
            f"Image size and channels must be whole numbers of at least 1, but are {size} and {channels!r}."
        )
    names = numbered(classes) if isinstance(classes, int) else classes
    color = fill if fill is not None else mean if any(mean) else (0.5,)
    passes = fitting_pass(network, channels, size) if at_once is None else at_once
    given = given_masks(masks, size) if isinstance(masks, Tensor | np.ndarray) else None
    number = {"masks": masks} if given is None else {"given": len(given)}
    settings: dict[str, Any] = {"at_once": passes, "dtype": dtype, "compiled": compiled, **number}
    config = CoverConfig(len(names), channels, fill=tuple(map(float, color)), **settings)
    scorer = config.handed(network).build(size, mean, std).eval()
    if given is not None:
        scorer.given.copy_(given)
    made = built(network, scorer, rule, patch, names)
    return made if framing is None else replace(made, card={"framing": write_config(framing)})


def given_masks(masks: Tensor | np.ndarray, size: Size) -> Tensor:
    """The caller's masks, bool [n h w]; refused unless they are that."""
    found = torch.as_tensor(masks)
    if found.dtype != torch.bool or found.dim() != 3 or len(found) < 1 or tuple(found.shape[1:]) != size:
        raise UsageError(
            f"Masks must be booleans of shape [masks, {size[0]}, {size[1]}], true where a mask hides, but are "
            f"{found.dtype} {list(found.shape)}. Stack one per mask."
        )
    return found


def need_evaluation(network: nn.Module) -> None:
    """Refuse what is no network in evaluation mode."""
    if not isinstance(network, nn.Module):
        raise UsageError(
            f"A network must be a torch.nn.Module, but is {type(network).__name__}. Give the network itself."
        )
    if any(module.training for module in network.modules()):
        raise UsageError("The network is in training mode. Call network.eval() first.")


def numbered(classes: int) -> list[str]:
    return [str(number) for number in range(classes)]


def built(network: nn.Module, scorer: Scorer, rule: str | Rule, patch: Patch, classes: Sequence[str]) -> Defense:
    """The defense, named after the network's class."""
    made = Defense.build(scorer, rule, patch, classes)
    twice = next((name for name, count in Counter(made.classes).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"Class names must differ, but '{twice:.60}' names several. Give each class its own.")
    return replace(made, name=type(network).__name__)
