"""A scorer as a plain network, for tools that trace or export one."""

from torch import Tensor, nn

from bagcert.scorers.base import Scorer


class Logits(nn.Module):
    """The scores before the score step, where their last bits show."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer
        self.training = False  # this module's; the scorer keeps its own mode

    def forward(self, images: Tensor) -> Tensor:
        return self.scorer.logits(images)
