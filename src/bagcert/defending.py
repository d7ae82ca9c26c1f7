"""From your own network to a defense in one call."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rules import Rule
from bagcert.scorers.wrapped import wrap
from bagcert.threats import Patch
from bagcert.threats.footprint import IntOrPair


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
    if isinstance(network, nn.Module) and any(module.training for module in network.modules()):
        raise UsageError("The network is in training mode. Call network.eval() first.")
    scorer = wrap(network, image_size, channels, step)
    if scorer.classes < 2:
        raise UsageError("The network scores 1 class. Give it at least 2: a single class has no rival.")
    names = [str(number) for number in range(scorer.classes)] if classes is None else classes
    built = Defense.build(scorer, rule, patch, names)
    twice = next((name for name, count in Counter(built.classes).items() if count > 1), None)
    if twice is not None:
        raise UsageError(f"Class names must differ, but '{twice:.60}' names several. Give each class its own.")
    return replace(built, name=type(network).__name__)
