"""More than one answer from a score map, each in one call: sets of classes, labels, a class for every position."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bagcert.certify import checked_scores, find_footprint
from bagcert.rules import IntegerScores, TopClasses, TwoMask
from bagcert.rules.labels import LabelCertificate, certify_maps
from bagcert.rules.segmentation import Segmentation, segment
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


def certify_labels(
    scores: "Tensor | np.ndarray | IntegerScores",
    thresholds: "int | Sequence[int] | Tensor",
    patch: Patch = "5x5",
    receptive_field: IntOrPair = 7,
    *,
    footprint: Footprint | None = None,
    slack: int = 0,
) -> LabelCertificate:
    """Which labels each image has, each for itself, and which of them no patch of the threat adds or takes away.

    A label is there if its scores exceed its threshold in the mean, by the rule of two masks. Thresholds are in score
    units, one for all labels or one for each; of 0/1 votes give `100 * votes` and a threshold in percent. The other
    arguments are those of `certify_scores` (`bagcert.rules.labels`).

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 1:, :, :5] = 1  # the left half votes for the labels 1 and 2
    >>> found = bagcert.certify_labels(100 * votes, 20, patch="2x2", receptive_field=3)
    >>> found.present.tolist(), found.proven.tolist()
    ([[False, True, True]], [[True, True, True]])
    """
    checked, regions = read_maps(scores, patch, receptive_field, footprint, slack)
    return certify_maps(checked, torch.as_tensor(thresholds), regions)


def certify_segmentation(
    scores: "Tensor | np.ndarray | IntegerScores",
    labels: "Tensor | np.ndarray",
    patch: Patch = "5x5",
    receptive_field: IntOrPair = 7,
    *,
    footprint: Footprint | None = None,
    slack: int = 0,
) -> Segmentation:
    """The class of every position, and how many right ones survive any patch of the threat.

    `labels` [b i j] are the true classes on the grid of the scores [b k i j]. The other arguments are those of
    `certify_scores` (`bagcert.rules.segmentation`).

    >>> import torch, bagcert
    >>> scores = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> scores[0, 1, :, :4] = 1  # class 1 on the left, class 0 on the right
    >>> bagcert.certify_segmentation(scores, scores[:, 1], patch="2x2", receptive_field=3)
    Segmentation(1 images, of 64 positions 64 right, 48 under any patch)
    """
    checked, regions = read_maps(scores, patch, receptive_field, footprint, slack)
    return segment(checked, torch.as_tensor(labels), regions)


def read_maps(
    scores: "Tensor | np.ndarray | IntegerScores",
    patch: Patch,
    receptive_field: IntOrPair,
    footprint: Footprint | None,
    slack: int,
) -> tuple[IntegerScores, Regions]:
    """Checked scores, and the maximal regions of the threat on their grid."""
    bounds = scores.bounds if isinstance(scores, IntegerScores) else None
    checked = checked_scores(scores, bounds, None, slack, footprint)
    network = find_footprint(checked.values, receptive_field, 1, None, footprint)
    return checked, network.regions(parse_threat(patch, network.image_size)).maximal()
