"""What can be checked before a network runs: its mode, its layers, its declared footprint."""

from collections.abc import Iterator

import torch

from bagcert.errors import UsageError
from bagcert.scorers.base import Logits, Scorer
from bagcert.threats import Footprint
from bagcert.threats.tracing import trace_footprint


def structural_problems(scorer: Scorer, channels: int) -> Iterator[str]:
    """Training mode, a layer that mixes positions, or a footprint smaller than the traced one."""
    for name, module in scorer.named_modules():
        if module.training:
            layer = f"Layer '{name}'" if name else "The network"
            yield f"{layer} is in training mode. Call scorer.eval()."
            return
    for part in scorer.parts:
        if not part.traceable:
            continue  # only running it shows whether its footprint holds
        try:
            traced = trace_footprint(Logits(part), part.footprint.image_size, channels)
        except UsageError as error:
            yield str(error)
            return
        if not covers(part.footprint, traced):
            declared, found = part.footprint.receptive_field, traced.receptive_field
            yield (
                f"The footprint is declared for receptive field {declared[0]}x{declared[1]}, but the layers have "
                f"{found[0]}x{found[1]}. Declare the footprint of these layers."
            )


def covers(declared: Footprint, traced: Footprint) -> bool:
    """Whether the declared footprint includes every pixel that each output sees through its layers."""
    if (declared.grid, declared.image_size) != (traced.grid, traced.image_size):
        return False
    return bool((seen(traced) <= seen(declared)).all())


def seen(footprint: Footprint) -> torch.Tensor:
    """Bool [i j h w]: which pixels each output sees."""
    products = [branch.rows[:, None, :, None] & branch.columns[None, :, None, :] for branch in footprint.branches]
    return torch.stack(products).any(dim=0)
