"""Bring your own network: its footprint is traced, checked with NaN, and its scores are made integers."""

from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.scorers.base import Scorer
from bagcert.scorers.steps import score_step
from bagcert.shapes import Images
from bagcert.threats.footprint import IntOrPair, pair
from bagcert.threats.probe import check_footprint
from bagcert.threats.tracing import trace_footprint


class WrappedScorer(Scorer):
    """Any network from images [b c h w] to scores [b k i j] whose layers keep positions apart."""

    def __init__(self, module: nn.Module, image_size: tuple[int, int], channels: int, step: str) -> None:
        super().__init__()
        self.module = module
        self.step = score_step(step)
        self.footprint = trace_footprint(module, image_size, channels)
        check_footprint(module, self.footprint, channels)

    def logits(self, images: Images) -> Tensor:
        scores: Tensor = self.module(images.clone())  # a network that writes into its input gets its own
        return scores


def wrap(module: nn.Module, image_size: IntOrPair, channels: int = 3, step: str = "logits") -> WrappedScorer:
    """Make a scorer of your network, in evaluation mode: `wrap(net, 32).scores(images)` are the integers rules take.

    The footprint comes from tracing the network (torch.export). A layer that mixes positions is refused by its name:
    attention, norms over space, global pooling, batch norm in training mode, padding that mirrors. Then single pixels
    are set to NaN, and no output outside the footprint may turn NaN. `step` says what the outputs are: "logits"
    (fixed-point, for `two-mask`), "heaviside" (a vote where an output is at least 0), "sigmoid" or "softmax".
    """
    size = pair(image_size)
    if min(*size, channels) < 1:
        raise UsageError(f"expected image size and channels of at least 1, got {size[0]}x{size[1]}x{channels}")
    scorer = WrappedScorer(module, size, channels, step)
    scorer.training = False  # the module's own mode is left as it is, and refused when it scores in training mode
    return scorer
