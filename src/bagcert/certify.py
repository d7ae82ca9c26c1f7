"""From a score map to a certificate in one call."""

import numpy as np
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules import Bounds, Certificate, IntegerScores, Rule, find_rule, read_scores
from bagcert.rules.largest_square import largest_square, squares
from bagcert.threats import Footprint, Patch, parse_threat
from bagcert.threats.footprint import IntOrPair, pair

LEAST_ROWS = 8  # of a grid that is recognized by its shape alone


def certify_scores(
    scores: "Tensor | np.ndarray | IntegerScores",
    patch: Patch = "5x5",
    receptive_field: IntOrPair = 7,
    stride: IntOrPair = 1,
    image_size: IntOrPair | None = None,
    rule: str | Rule = "two-mask",
    bounds: Bounds | None = (0, 1),
    *,
    footprint: Footprint | None = None,
    uncertain: "Tensor | np.ndarray | None" = None,
    slack: int = 0,
    exact: bool = True,
) -> Certificate:
    """Classify score maps [b k i j] by a rule and prove what no patch of the threat can change.

    Scores are 0/1 votes, or fixed-point integers with declared `bounds` (None: unbounded, for `two-mask`). An output
    sees `receptive_field` pixels centered on its position times the stride; for any other network, pass its `footprint`
    instead. `image_size` defaults to the score grid times the stride. `uncertain` and `slack` are the guard band
    (`read_scores`). `exact=False` skips the lead and the weakest placements if deciding alone is cheaper. The scores of
    a defense, `defense.scores(images)`, know their bounds and need `footprint=defense.scorer.footprint`.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certify_scores(votes, patch="2x2", receptive_field=3)
    Certificate(class 2, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    """
    found = find_rule(rule)
    found.need_views(promised=False)
    checked = checked_scores(scores, bounds, uncertain, slack, footprint)
    network = find_footprint(checked.values, receptive_field, stride, image_size, footprint)
    threat = parse_threat(patch, network.image_size)
    return found.certify(checked, network.regions(threat).maximal(), exact)


def certified_size(
    scores: "Tensor | np.ndarray | IntegerScores",
    receptive_field: IntOrPair = 7,
    stride: IntOrPair = 1,
    image_size: IntOrPair | None = None,
    rule: str | Rule = "every-region",
    bounds: Bounds | None = (0, 1),
    *,
    patch: Patch | None = None,
    footprint: Footprint | None = None,
    uncertain: "Tensor | np.ndarray | None" = None,
    slack: int = 0,
) -> Tensor:
    """The side of the largest square patch each image is certified for, int64 [b]; 0 if there is none.

    Every square lies inside a larger one, so a proof for one side is a proof for every smaller one. The masks of
    `masked` and `two-mask` are part of their inference: name the threat they are built for as `patch`, and all sides
    are certified under that one mask set. The sum rules need no `patch`.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certified_size(votes, receptive_field=3)
    tensor([3])
    """
    found = find_rule(rule)
    found.need_views(promised=False)
    checked = checked_scores(scores, bounds, uncertain, slack, footprint)
    network = find_footprint(checked.values, receptive_field, stride, image_size, footprint)
    if not found.built:
        if patch is None:
            raise UsageError(
                f"The masks of '{found.name}' are built for a threat, but none is given. Pass one, as in patch='8x8'."
            )
        found = found.built_for(network.regions(parse_threat(patch, network.image_size)).maximal())
    return largest_square(found, checked, squares(found, network, checked.values.device))


def checked_scores(
    scores: "Tensor | np.ndarray | IntegerScores",
    bounds: Bounds | None,
    uncertain: "Tensor | np.ndarray | None",
    slack: int,
    footprint: Footprint | None,
) -> IntegerScores:
    """Scores of the caller's own, checked; those of a defense as they are, but never with a guessed receptive field."""
    if not isinstance(scores, IntegerScores):
        return read_scores(scores, bounds, uncertain, slack)
    if footprint is None:
        raise UsageError(
            "Scores of a defense do not say what they see. Pass footprint=defense.scorer.footprint, or use "
            "defense.certify(images)."
        )
    if bounds not in ((0, 1), scores.bounds) or uncertain is not None or slack != 0:
        raise UsageError(
            "Scores of a defense have bounds and a guard band already. Leave out bounds, uncertain and slack, or pass "
            "scores.values with others."
        )
    return scores


def find_footprint(
    scores: Tensor,
    receptive_field: IntOrPair,
    stride: IntOrPair,
    image_size: IntOrPair | None,
    footprint: Footprint | None,
) -> Footprint:
    """The given footprint, or that of centered receptive fields, checked against the score grid."""
    grid = (scores.shape[2], scores.shape[3])
    if not (footprint is None or isinstance(footprint, Footprint)):
        raise UsageError(
            f"A footprint must be a Footprint, but is {type(footprint).__name__}. "
            "Make one by Footprint.of_layers, or give receptive_field and stride."
        )
    refuse_channels_last(scores, stride, image_size, footprint)
    if footprint is not None:
        if footprint.grid != grid:
            raise UsageError(
                f"The scores lie on a {grid[0]}x{grid[1]} grid, but the footprint on a "
                f"{footprint.grid[0]}x{footprint.grid[1]} grid. "
                "Give the footprint of the network that made the scores."
            )
        return footprint
    steps = pair(stride)
    size = (grid[0] * steps[0], grid[1] * steps[1]) if image_size is None else pair(image_size)
    return Footprint.centered(receptive_field, stride, size, grid)


def refuse_channels_last(
    scores: Tensor, stride: IntOrPair, image_size: IntOrPair | None, footprint: Footprint | None
) -> None:
    """Refuse scores [b i j k] if it shows: with the classes at the end, the grid fits the image or is a square.

    Scores of as many classes as rows on a grid that is no square look the same. Their callers give the image size; on
    small grids, where that is more likely, nothing is refused without one.
    """
    classes, rows, columns = scores.shape[1:]
    if footprint is not None:
        wanted = footprint.grid
    elif image_size is not None:
        sides, steps = pair(image_size), pair(stride)
        wanted = (-(-sides[0] // max(steps[0], 1)), -(-sides[1] // max(steps[1], 1)))
    elif rows >= LEAST_ROWS:
        wanted = (rows, rows)
    else:
        return
    if (rows, columns) != wanted == (classes, rows):
        otherwise = ", or give image_size if they are right" if image_size is None and footprint is None else ""
        raise UsageError(
            f"Scores must have the shape [images, classes, rows, columns], but {list(scores.shape)} looks like "
            f"[images, rows, columns, classes]. Use scores.permute(0, 3, 1, 2){otherwise}."
        )
