"""How many more images the papers' own tie rules certify: their only difference from ours on the same scores.

We certify a strict lead. Derandomized smoothing also certifies a lead of 0 over rivals of higher index, since its lower
index wins ties; PatchGuard one over rivals of lower index, since its higher index wins; Clipped BagNet every lead of 0.
PatchCleanser compares classes, and interval bounds are real numbers: neither has ties.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bagcert.defense import Defense
from bagcert.rules import IntegerScores

# From the indices of rivals [k] and predicted classes [b 1]: which rivals lose a tie.
Harmless = Callable[[Tensor, Tensor], Tensor]
TIE_RULES: dict[str, tuple[str, Harmless]] = {
    "ds-column": ("lower index wins", torch.gt),
    "ds-row": ("lower index wins", torch.gt),
    "ds-block": ("lower index wins", torch.gt),
    "clipped-bagnet": ("a tie counts as robust", torch.ne),
    "mask-bn": ("higher index wins", torch.lt),
    "mask-ds": ("higher index wins", torch.lt),
}


@torch.no_grad()
def least_leads(defense: Defense, scores: IntegerScores) -> tuple[Tensor, Tensor]:
    """The predicted class [b], and its least lead over each rival at any placement, [b k]; its own is far above 0."""
    predicted = defense.certify_integers(scores).predicted
    parts = [
        defense.rule.least_leads(scores.part(part), predicted[part], defense.regions)
        for part in (slice(start, start + 64) for start in range(0, len(predicted), 64))
    ]
    return predicted, torch.cat(parts)


def added_by_ties(defense: Defense, scores: IntegerScores, harmless: Harmless) -> Tensor:
    """The images that a tie rule certifies and ours does not, bool [b]."""
    predicted, leads = least_leads(defense, scores)
    index = torch.arange(leads.shape[1], device=leads.device)
    lost = (leads < 0) | ((leads == 0) & ~harmless(index, predicted[:, None]))
    return ~lost.any(dim=1) & (leads == 0).any(dim=1)
