"""More than one answer from a score map: sets of classes, in one call."""

import numpy as np
from torch import Tensor

from bagcert.certify import checked_scores, find_footprint
from bagcert.rules import IntegerScores, TopClasses, TwoMask
from bagcert.threats import Footprint, Patch, Regions, parse_threat
from bagcert.threats.footprint import IntOrPair


def certify_top(
    scores: "Tensor | np.ndarray | IntegerScores",
    best: int,
    patch: Patch = "5x5",
    receptive_field: IntOrPair = 7,
    *,
    footprint: Footprint | None = None,
    slack: int = 0,
) -> TopClasses:
    """The classes among the `best` ones, as a set, and those that no patch of the threat takes out of it.

    Scores [b k i j] are votes or fixed-point integers of any size; the other arguments are those of `certify_scores`.
    A set has at least `best` classes, and may have more (`bagcert.rules.top_classes`).

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 1:] = 1  # every position votes for the classes 1 and 2
    >>> found = bagcert.certify_top(votes, 2, patch="2x2", receptive_field=3)
    >>> found.members.tolist(), found.proven.tolist()
    ([[False, True, True]], [[False, True, True]])
    """
    checked, regions = read_maps(scores, patch, receptive_field, footprint, slack)
    return TwoMask().certify_top(checked, best, regions)


def read_maps(
    scores: "Tensor | np.ndarray | IntegerScores",
    patch: Patch,
    receptive_field: IntOrPair,
    footprint: Footprint | None,
    slack: int,
) -> tuple[IntegerScores, Regions]:
    """Checked scores, and the maximal footprints of the threat on their grid."""
    bounds = scores.bounds if isinstance(scores, IntegerScores) else None
    checked = checked_scores(scores, bounds, None, slack, footprint)
    network = find_footprint(checked.values, receptive_field, 1, None, footprint)
    return checked, network.regions(parse_threat(patch, network.image_size)).maximal()
