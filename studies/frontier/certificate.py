"""The two-mask rule on several score maps at once, each masked by its own footprint.

A patch reaches other scores in a map of receptive field 7 than in one of 5. A mask belongs to a placement of the patch
and takes from every map what the patch reaches there. The decision is made on the sum of all scores that are left.

Certificate: the predicted class wins, strictly, under every pair of masks.

Proof, as for one map. Let the patch sit at l. All scores that it reaches, in all maps, lie inside mask m of l, or of a
placement that reaches more in every map. A pair that contains m sees clean scores only, so the class wins them all: m
makes it consistent. No other class is consistent under any mask m', because it would have to win the pair (m', m). So
the class is still the prediction.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.threats import Footprint


@dataclass(frozen=True)
class Decisions:
    """Per image."""

    plain: Tensor  # argmax of the sums without any mask
    predicted: Tensor  # the class that wins under some mask, whatever the second mask; if there is none, `plain`
    certified: Tensor  # bool
    lead: (
        Tensor  # the least one of `plain` outside any one mask, int64: the rule `detect` compares it with its threshold
    )

    def accuracies(self, labels: Tensor) -> dict[str, float]:
        """By the rule `two-mask`; plain and detectable by the rule `detect` with a threshold of 0."""
        right, plain = self.predicted == labels, self.plain == labels
        shares = {"plain": plain, "clean": right, "certified": right & self.certified}
        shares["detectable"] = plain & (self.lead > 0)
        return {name: round(float(flags.double().mean()), 6) for name, flags in shares.items()}


def certify(maps: Sequence[Tensor], footprints: Sequence[Footprint], patch: int = 5, chunk: int = 4) -> Decisions:
    """Try every pair of masks. The maps [b k i j] hold integers, one map per footprint."""
    rows, columns = ([each.to(maps[0].device) for each in lines] for lines in reached(footprints, patch))
    parts = [
        _certify([each[start : start + chunk].double() for each in maps], rows, columns)
        for start in range(0, len(maps[0]), chunk)
    ]
    return joined(parts)


def joined(parts: Sequence[Decisions]) -> Decisions:
    """The decisions about all images, in order."""
    return Decisions(*(torch.cat([getattr(part, each.name) for part in parts]) for each in fields(Decisions)))


def reached(footprints: Sequence[Footprint], patch: int) -> tuple[list[Tensor], list[Tensor]]:
    """Per map, the rows and the columns that each mask takes, bool [n i] and [m j].

    A placement that reaches no more than another one, in any map, needs no mask of its own.
    """
    branches = []
    for footprint in footprints:
        if len(footprint.branches) != 1:
            raise UsageError("Each network must have a footprint of one branch, as residual networks have.")
        branches.append(footprint.branches[0])
    return _lines([each.rows for each in branches], patch), _lines([each.columns for each in branches], patch)


def _lines(seen: Sequence[Tensor], patch: int) -> list[Tensor]:
    """The same along one axis; `seen` [outputs, pixels] says which pixels an output sees."""
    starts = range(seen[0].shape[1] - patch + 1)
    taken = [torch.stack([each[:, start : start + patch].any(dim=1) for start in starts]) for each in seen]
    whole = torch.cat(taken, dim=1)  # n outputs of all maps
    inside = (whole[:, None] <= whole[None]).all(dim=2)  # does the second one reach all that the first one does?
    earlier = torch.ones_like(inside).tril(-1)
    kept = ~(inside & (~inside.T | earlier)).any(dim=1)  # of equal ones the first
    return [each[kept] for each in taken]


@torch.no_grad()
def _certify(maps: Sequence[Tensor], rows: Sequence[Tensor], columns: Sequence[Tensor]) -> Decisions:
    """For a few images. Sums of integers below 2^53 are exact in float64."""
    total = torch.stack([each.sum(dim=(2, 3)) for each in maps]).sum(dim=0)  # b k
    common = torch.stack([_common(*each) for each in zip(maps, rows, columns, strict=True)]).sum(dim=0)
    single = common.diagonal(dim1=2, dim2=3)  # what one mask takes
    left = total[:, :, None, None] - single[:, :, :, None] - single[:, :, None, :] + common  # b k first second
    winner = left.argmax(dim=1)  # the lowest class on ties
    always, first = (winner == winner[:, :, :1]).all(dim=2).max(dim=1)
    plain = total.argmax(dim=1)
    predicted = torch.where(always, winner[:, :, 0].gather(1, first[:, None])[:, 0], plain)
    certified = least_lead(left.flatten(2), predicted) > 0
    return Decisions(plain, predicted, certified, least_lead(total[:, :, None] - single, plain).long())


def least_lead(left: Tensor, classes: Tensor) -> Tensor:
    """Of each image's class over any other one, in any of the sums [b k n]."""
    index = classes[:, None, None].expand(-1, 1, left.shape[2])
    rival = left.scatter(1, index, float("-inf")).amax(dim=1)
    return (left.gather(1, index)[:, 0] - rival).amin(dim=1)


def _common(scores: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The sum that two masks have in common, for every pair of masks: [b k i j] to [b k n·m n·m]."""
    n, m = len(rows), len(columns)
    down = (rows[:, None] & rows[None]).flatten(0, 1).to(scores)  # n·n i
    across = (columns[:, None] & columns[None]).flatten(0, 1).to(scores)  # m·m j
    sums = (down @ scores @ across.T).view(*scores.shape[:2], n, n, m, m)
    return sums.transpose(3, 4).flatten(4, 5).flatten(2, 3)
