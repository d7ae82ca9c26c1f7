"""One evaluation of a rows file: is what a row says of an image so?"""

from abc import ABC, abstractmethod
from typing import Any, final

from bagcert.errors import UsageError
from bagcert.evaluation.verifying.conditions import (
    Finding,
    every_region,
    largest_region,
    masked,
    two_mask,
    unanimous,
)
from bagcert.evaluation.verifying.reach import Floats, Windows, blind_views, maximal_windows

RULES = ("largest-region", "every-region", "masked", "two-mask", "unanimous")


def checker_for(header: dict[str, Any], patch: str, rule: str) -> "Checker":
    """What checks this evaluation; the scores of views are for one rule, which takes no others."""
    if rule not in RULES:
        raise UsageError(f"expected one of the rules {', '.join(RULES)} in the rows, got '{rule}'")
    views = "hidden" in header["footprint"]
    if (rule == "unanimous") != views:
        raise UsageError(
            f"expected rule 'unanimous' for scores of views and no others in the rows, got '{rule}' for "
            f"{'views' if views else 'other scores'}"
        )
    return ViewChecker(header, patch, rule) if views else RegionChecker(header, patch, rule)


class Checker(ABC):
    """One patch and one rule."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str) -> None:
        self.patch, self.rule, self.footprint = patch, rule, header["footprint"]
        self.low, self.high = header["scores"]["bounds"]

    def problems(self, scores: Floats, result: list[Any]) -> list[str]:
        """What does not hold; nothing where all does."""
        claimed, flag = result[:2]
        if not 0 <= claimed < len(scores):
            return [f"class {claimed} of {len(scores)}"]
        finding = self.finding(scores, claimed)
        found = ["views are unanimous about two classes"] if finding.split else []
        if finding.predicted != claimed:
            found.append(f"predicted {finding.predicted}, row says {claimed}")
        if (finding.lead > 0) != (flag == 1):
            found.append(f"{'certified' if finding.lead > 0 else 'not certified'}, row says otherwise")
        if len(result) > 2 and result[2] != finding.lead:
            found.append(f"lead {finding.lead}, row says {result[2]}")
        if len(result) > 6 and result[6] > 0 and not self.square_holds(scores, claimed, result[6], finding):
            found.append(f"no proof for {result[6]}x{result[6]}")
        return [f"{self.patch} {self.rule}: {words}" for words in found]

    @abstractmethod
    def finding(self, scores: Floats, claimed: int) -> Finding:
        """Prediction, and what is left of the claimed class after the worst attack."""

    @abstractmethod
    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        """Is the claimed class safe from every square of this side?"""


@final
class RegionChecker(Checker):
    """Scores that each see a part of the image, with what the patch can reach."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str) -> None:
        super().__init__(header, patch, rule)
        self._reach = maximal_windows(self.footprint, patch)
        self._squares: dict[int, Windows] = {}

    def finding(self, scores: Floats, claimed: int) -> Finding:
        return self.find(scores, claimed, self._reach)

    def find(self, scores: Floats, claimed: int, reach: Windows) -> Finding:
        """Prediction and lead against patches with this reach; masks stay those of the evaluation's own patch."""
        if self.rule == "largest-region":
            return largest_region(scores, claimed, reach, self.high - self.low)
        if self.rule == "every-region":
            return every_region(scores, claimed, reach, self.high - self.low)
        if self.rule == "masked":
            return masked(scores, claimed, self._reach, reach)
        return two_mask(scores, claimed, self._reach)

    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        if side > min(self.footprint["image_size"]):
            return False
        if side not in self._squares:
            self._squares[side] = maximal_windows(self.footprint, f"{side}x{side}")
        squares = self._squares[side]
        if self.rule in ("masked", "two-mask") and not squares.within(self._reach).any(axis=1).all():
            return False  # larger than the masks
        if finding.robust is not None:  # each square must lie inside a mask that withstands every second one
            return bool((squares.within(self._reach) & finding.robust).any(axis=1).all())
        return self.find(scores, claimed, squares).lead > 0


@final
class ViewChecker(Checker):
    """Scores of views that each hide a part of the image, with the placements that each is blind to."""

    def __init__(self, header: dict[str, Any], patch: str, rule: str) -> None:
        super().__init__(header, patch, rule)
        self._blind = {patch: blind_views(self.footprint, patch)}

    def finding(self, scores: Floats, claimed: int) -> Finding:
        return self.find(scores, claimed, self.patch)

    def find(self, scores: Floats, claimed: int, patch: str) -> Finding:
        """Prediction and lead against this patch, by the views of the evaluation's own."""
        if patch not in self._blind:
            self._blind[patch] = blind_views(self.footprint, patch)
        return unanimous(scores, claimed, self._blind[patch], self.high)

    def square_holds(self, scores: Floats, claimed: int, side: int, finding: Finding) -> bool:
        fits = side <= min(self.footprint["image_size"])
        return fits and self.find(scores, claimed, f"{side}x{side}").lead > 0
