"""The largest square patch that each image is certified for, or detectable under if that is what the rule promises."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from bagcert.rules.rule import Rule
from bagcert.rules.scores import IntegerScores
from bagcert.threats import Footprint, RectangleThreat, Regions


def squares(rule: Rule, footprint: Footprint, device: torch.device) -> Iterator[tuple[int, Regions]]:
    """Every side from 1 on and the regions of that square, as far as the rule covers them."""
    for side in range(1, min(footprint.image_size) + 1):
        threat = RectangleThreat(footprint.image_size, ((side, side),))
        regions = footprint.regions(threat).maximal().to(device)
        if not rule.covers(regions):
            return
        yield side, regions


def largest_square(
    rule: Rule, scores: IntegerScores, tried: Iterable[tuple[int, Regions]], known: Tensor | None = None
) -> Tensor:
    """The largest of the sides that each image is certified for, int64 [b]; 0 if there is none.

    A square lies inside a larger one, so a proof for one side holds for every smaller one. If the rule is `nested` and
    the scores are exact, an image that fails at one side fails at every larger one. `known` sides are proven already.
    """
    nested = rule.nested and not scores.guarded  # a guard band may cost more than the bounds leave to an attacker
    count, device = len(scores.values), scores.values.device
    sides = torch.zeros(count, dtype=torch.int64, device=device) if known is None else known.clone()
    hopeful = torch.ones(count, dtype=torch.bool, device=device)
    for side, regions in tried:
        if not bool(hopeful.any()):
            break
        asked = (hopeful & (sides < side)).nonzero().flatten()
        if not len(asked):
            continue
        proven = rule.proven(rule.certify(scores.part(asked), regions, exact=False))
        sides[asked[proven]] = side
        if nested:
            hopeful[asked[~proven]] = False
    return sides
