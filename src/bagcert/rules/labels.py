"""Labels of a picture, each present or absent by two masks, and how many of them a patch can make wrong.

Notation: a label c has a score and a threshold θ_c at each position; d_c = s_c - θ_c.

Inference, for each label by itself. Outside some masks it is *present* if Σ d_c > 0 there, else *absent*. One of these
is *consistent* if there is a mask under which it holds whatever second mask is added. They cannot both be: with the
masks m1 and m2, both would have to hold under the pair (m1, m2). The answer is the consistent one if there is one, else
that of the plain sum. This is `two-mask` with the classes absent, whose scores are 0, and present, with scores d_c.

A mask m *keeps* a label present if Σ d_c > 0, absent if Σ d_c < 0, outside m and every second mask.

Proof. Let the patch sit at l, with R(l) inside mask m. A pair that contains m sees only clean scores. So what m keeps
is consistent on the attacked image, too, and is its answer. A label that every mask keeps as it is cannot be changed.

How many labels can be wrong? One patch sits at one place. If it is inside m, only the labels that m does not keep as
the truth says can be wrong. So at most the largest number of them under one mask are wrong at once, which may be much
less than the number of labels that are not proven. PatchDEMUX (Jacob et al., 2025) counts like that.

With a guard band, present counts the low end of d_c and absent the high end.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.masking_rule import least_pairs
from bagcert.rules.pairs import floors
from bagcert.rules.scores import IntegerScores, extremes, fitting_type, outside, to_integers
from bagcert.rules.two_mask import TwoMask
from bagcert.threats import Regions


@dataclass(frozen=True, eq=False)
class LabelCertificate:
    """For each image: its labels, and at each place of a patch those that it cannot change."""

    present: Tensor  # bool [b k]: the answer
    kept_present: Tensor  # bool [b k n]: under each mask
    kept_absent: Tensor  # bool [b k n]

    @property
    def proven(self) -> Tensor:
        """The labels that are present, or absent, whatever the patch: bool [b k]."""
        return self.kept(self.present).all(dim=2)

    def most_wrong(self, truth: Tensor) -> Tensor:
        """How many labels differ from the truth, bool [b k], under the worst patch; at most that many: int64 [b]."""
        if truth.dtype != torch.bool or truth.shape != self.present.shape:
            raise UsageError(
                f"The truth must be booleans of shape {list(self.present.shape)}, but is {truth.dtype} "
                f"{list(truth.shape)}. Say of each label whether it is there."
            )
        return (~self.kept(truth.to(self.present.device))).sum(dim=1).amax(dim=1)

    def most_changed(self) -> Tensor:
        """How many labels of the answer one patch can change; at most that many: int64 [b]."""
        return self.most_wrong(self.present)

    def kept(self, wanted: Tensor) -> Tensor:
        """The labels that stay as wanted, bool [b k], under each mask: bool [b k n]."""
        return torch.where(wanted[:, :, None], self.kept_present, self.kept_absent)

    def __len__(self) -> int:
        return len(self.present)

    def __repr__(self) -> str:
        return f"LabelCertificate({len(self)} images, {int(self.proven.sum())} of {self.present.numel()} labels proven)"


@torch.no_grad()
def certify_maps(scores: IntegerScores, thresholds: Tensor, regions: Regions) -> LabelCertificate:
    """The labels of images [b k i j], with a threshold for each label, int64 [k]."""
    classes = scores.values.shape[1]
    whole = not (thresholds.is_floating_point() or thresholds.is_complex() or thresholds.dtype == torch.bool)
    if thresholds.shape not in ((), (classes,)) or not whole:
        raise UsageError(
            f"Give one whole number as the threshold, or one for each of {classes} labels, but these are "
            f"{thresholds.dtype} {list(thresholds.shape)}. They are in score units, for one position."
        )
    if regions.count > 1:
        raise UsageError("Labels are proven against one patch, not several at once. Give another threat.")
    above = above_thresholds(scores, thresholds)
    shape = (*above.values.shape[:2], len(regions))
    masks = regions.to(above.values.device)
    kept_present = lasting(above.low.flatten(0, 1), masks).view(shape)
    kept_absent = lasting(-above.high.flatten(0, 1), masks).view(shape)
    values = above.values.flatten(0, 1)
    duel = torch.stack([torch.zeros_like(values), values], dim=1)
    present = TwoMask().predict(IntegerScores(duel, duel, duel, None), masks).view(shape[:2]) == 1
    return LabelCertificate(present, kept_present, kept_absent)


def above_thresholds(scores: IntegerScores, thresholds: Tensor) -> IntegerScores:
    """The scores less their thresholds, in a type that holds all sums."""
    whole = to_integers(thresholds.to(scores.values.device), None).long()
    shift = whole.expand(scores.values.shape[1])[:, None, None]
    shifted = [each.long() - shift for each in (scores.values, scores.low, scores.high)]
    most = max(abs(bound) for each in shifted[1:] for bound in extremes(each))
    kind = fitting_type(scores.values.shape[2:].numel(), most, None, 0)
    values, low, high = (each.to(kind) for each in shifted)
    return IntegerScores(values, low, high, None)


def lasting(maps: Tensor, masks: Regions) -> Tensor:
    """Of maps [r i j], bool [r n]: is the sum outside each mask and every second one above 0?"""
    left = outside(maps, masks)
    lasts = left > 0
    row, first = (lasts & (floors(maps, left, masks) <= 0)).nonzero(as_tuple=True)
    lasts[row, first] = least_pairs(maps, row, first, masks) > 0
    return lasts
