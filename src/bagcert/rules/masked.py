"""PatchGuard's robust masking: each class loses its heaviest mask before the sums are compared."""

from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.certificate import Certificate, own
from bagcert.rules.masking_rule import MaskingRule, needed_cover, pieces, second_masks
from bagcert.rules.rule import rivals_only, weakest
from bagcert.rules.scores import IntegerScores, outside, sums
from bagcert.threats import Regions

LARGEST_DENOMINATOR = 1024  # sums stay below 2**52, so that times this they fit into int64


@final
@dataclass(frozen=True, eq=False)
class Masked(MaskingRule):
    """Detect and mask: a class whose heaviest mask holds more than the share T of its sum loses that mask.

    Inference, for every class c on its own: let S_c be its sum and M_c the sum in its heaviest mask. The class counts
    S_c - M_c if M_c > T S_c, else S_c. Predict the argmax. Scores are at least 0, T is an exact fraction in [0, 1), and
    T = 0 always masks.

    Certificate, for every region v of the attacker, with O_c the sum outside v:
        UB_c = O_c / (1 - T)                   for every rival c
        LB_ŷ = O_ŷ - max_m Σ_{m \\ v} s_ŷ       over the masks m that can be taken away
        LB_ŷ > UB_c                            for all v and all c ≠ ŷ

    Proof. Let a >= 0 be the sum that the attacker puts into v for class c. Some mask holds v, so M_c >= a. If c is
    masked, it keeps S_c - M_c <= O_c + a - a = O_c. If not, a <= M_c <= T S_c = T (O_c + a), so S_c <= O_c / (1 - T).
    ŷ keeps S_ŷ >= O_ŷ if it is not masked. If mask m is taken away, it keeps everything outside m, at least
    O_ŷ - Σ_{m \\ v} s_ŷ. A mask that misses v is taken away only if its clean sum exceeds T S_ŷ >= T O_ŷ; the other
    masks that miss v need not be counted.

    With a guard band the last step is dropped for T > 0: another vote could trigger a mask, so all masks count.

    Differs from PatchGuard: ties go to the lowest index and are never certified; masks that cannot be triggered are
    dropped one by one, not all together.

    >>> import torch, bagcert
    >>> votes = torch.zeros(1, 3, 8, 8, dtype=torch.int)
    >>> votes[0, 2] = 1  # every position votes for class 2
    >>> bagcert.certify_scores(votes, "2x2", receptive_field=3, rule=bagcert.Masked())
    Certificate(class 2, certified, lead 32 over class 0 at 2x2 at row 1, column 1)
    """

    threshold: Fraction | int | str = 0
    masks: Regions | None = None
    name: ClassVar[str] = "masked"
    nested: ClassVar[bool] = False  # inside a smaller region less of a mask is the attacker's, so LB may be smaller

    def __post_init__(self) -> None:
        try:
            share = Fraction(self.threshold)
        except (ValueError, TypeError, ArithmeticError) as error:
            raise UsageError(f"The threshold '{self.threshold}' is not a fraction. Write p/q, like 1/2.") from error
        if isinstance(self.threshold, float) or not 0 <= share < 1 or share.denominator > LARGEST_DENOMINATOR:
            raise UsageError(
                f"The threshold must be an exact fraction p/q with 0 <= p/q < 1 and q <= {LARGEST_DENOMINATOR}, but is "
                f"{self.threshold}. Write it like '1/2'."
            )

    @property
    def share(self) -> tuple[int, int]:
        """T as numerator and denominator."""
        return Fraction(self.threshold).as_integer_ratio()

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """Those of T = 0, whatever T is."""
        least = second_masks(own(scores.low, classes), regions, self.masks_for(regions))[0].long()
        return rivals_only(least[:, None] - outside(scores.high, regions).long(), classes)

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        low, _ = scores.need_bounds(self.name)
        if low < 0:
            raise UsageError(f"Rule 'masked' needs scores of at least 0, but their bounds start at {low}. Shift them.")
        part, whole = self.share
        total = sums(scores.values).long()
        heaviest = self.masks_for(regions).sums(scores.values).amax(dim=2).long()
        return torch.where(heaviest * whole > total * part, total - heaviest, total).argmax(dim=1)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        part, whole = self.share
        predicted = self._predict(scores, regions)
        least = self._lower_bound(own(scores.low, predicted), regions, always=scores.guarded or part == 0)
        most = (
            outside(scores.high, regions).long() * whole // (whole - part)
        )  # sums are whole numbers: rounding down is exact
        return weakest(least[:, None] - most, predicted, regions)

    def _lower_bound(self, maps: Tensor, regions: Regions, always: bool) -> Tensor:
        """LB_ŷ for each image's map [b i j] and each region of the attacker: [b v]."""
        masks = self.masks_for(regions)
        needed_cover(regions, masks)  # refuses a threat larger than the masks
        part, whole = self.share
        bounds = torch.empty(len(maps), len(regions), dtype=torch.int64, device=maps.device)
        for some in pieces(len(regions), masks, maps.device):
            attacked = regions.masks(some)
            touches = None if always else masks.sums(attacked.to(torch.int64)) > 0  # v n
            for each in pieces(len(maps), masks, maps.device, width=len(some)):
                rest = maps[each][:, None].masked_fill(attacked, 0).flatten(0, 1)
                total = sums(rest).long().view(len(each), len(some), 1)
                inside = masks.sums(rest).long().view(len(each), len(some), -1)
                if touches is not None:
                    inside = torch.where(touches | (inside * whole > total * part), inside, 0)
                bounds[each[:, None], some] = total[..., 0] - inside.amax(dim=2).clamp(min=0)
        return bounds
