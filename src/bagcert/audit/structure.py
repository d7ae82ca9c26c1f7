"""What can be said of a network before it runs: its mode, its layers, its declared footprint."""

from collections.abc import Iterator

import torch

from bagcert.errors import UsageError
from bagcert.onnx.logits import Logits
from bagcert.scorers.ablation import AblationScorer
from bagcert.scorers.base import Scorer
from bagcert.threats import Footprint
from bagcert.threats.tracing import trace_footprint


def structural_problems(scorer: Scorer, channels: int) -> Iterator[str]:
    """A network in training mode, a layer that mixes positions, a footprint smaller than the traced one."""
    for name, module in scorer.named_modules():
        if module.training:
            yield f"layer '{name or 'the network itself'}' is in training mode; call scorer.eval()"
            return
    if isinstance(scorer, AblationScorer):
        return  # its classifier mixes all it is shown, which is one ablation; running it shows whether that holds
    try:
        traced = trace_footprint(Logits(scorer), scorer.footprint.image_size, channels)
    except UsageError as error:
        yield str(error)
        return
    if not covers(scorer.footprint, traced):
        declared, found = scorer.footprint.receptive_field, traced.receptive_field
        yield (
            f"the footprint is declared for receptive field {declared[0]}x{declared[1]}, the layers have "
            f"{found[0]}x{found[1]}; give the footprint of these layers"
        )


def covers(declared: Footprint, traced: Footprint) -> bool:
    """Does every output see, by declaration, all that it sees by its layers?"""
    if (declared.grid, declared.image_size) != (traced.grid, traced.image_size):
        return False
    return bool((seen(traced) <= seen(declared)).all())


def seen(footprint: Footprint) -> torch.Tensor:
    """Bool [i j h w]: which pixels each output sees."""
    products = [branch.rows[:, None, :, None] & branch.columns[None, :, None, :] for branch in footprint.branches]
    return torch.stack(products).any(dim=0)
