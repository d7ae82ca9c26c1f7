"""One evaluation of a rows file: is what a row says of an image so?"""

from typing import Any

from bagcert.errors import UsageError
from bagcert.evaluation.verifying.conditions import Finding, every_region, largest_region, masked, two_mask
from bagcert.evaluation.verifying.reach import Floats, Windows, maximal_windows

RULES = ("largest-region", "every-region", "masked", "two-mask")


class Checker:
    """One patch and one rule, with what the patch can reach."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str) -> None:
        if rule not in RULES:
            raise UsageError(f"expected one of the rules {', '.join(RULES)} in the rows, got '{rule}'")
        self.patch, self.rule, self._footprint = patch, rule, header["footprint"]
        low, high = header["scores"]["bounds"]
        self._width = high - low
        self._reach = maximal_windows(self._footprint, patch)
        self._squares: dict[int, Windows] = {}

    def problems(self, scores: Floats, result: list[Any]) -> list[str]:
        """What does not hold; nothing where all does."""
        claimed, flag = result[:2]
        if not 0 <= claimed < len(scores):
            return [f"class {claimed} of {len(scores)}"]
        finding = self.find(scores, claimed, self._reach)
        found = []
        if finding.predicted != claimed:
            found.append(f"predicted {finding.predicted}, row says {claimed}")
        if (finding.lead > 0) != (flag == 1):
            found.append(f"{'certified' if finding.lead > 0 else 'not certified'}, row says otherwise")
        if len(result) > 2 and result[2] != finding.lead:
            found.append(f"lead {finding.lead}, row says {result[2]}")
        if len(result) > 6 and result[6] > 0 and not self.square_holds(scores, claimed, result[6], finding):
            found.append(f"no proof for {result[6]}x{result[6]}")
        return [f"{self.patch} {self.rule}: {words}" for words in found]

    def find(self, scores: Floats, claimed: int, reach: Windows) -> Finding:
        """Prediction and lead against patches with this reach; masks stay those of the evaluation's own patch."""
        if self.rule == "largest-region":
            return largest_region(scores, claimed, reach, self._width)
        if self.rule == "every-region":
            return every_region(scores, claimed, reach, self._width)
        if self.rule == "masked":
            return masked(scores, claimed, self._reach, reach)
        return two_mask(scores, claimed, self._reach)

    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        """Is the claimed class safe from every square of this side?"""
        if side > min(self._footprint["image_size"]):
            return False
        if side not in self._squares:
            self._squares[side] = maximal_windows(self._footprint, f"{side}x{side}")
        squares = self._squares[side]
        if self.rule in ("masked", "two-mask") and not squares.within(self._reach).any(axis=1).all():
            return False  # larger than the masks
        if finding.robust is not None:  # each square must lie inside a mask that withstands every second one
            return bool((squares.within(self._reach) & finding.robust).any(axis=1).all())
        return self.find(scores, claimed, squares).lead > 0
