"""Views that hide the patch: the class that one of them is unanimous about."""

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules.certificate import Certificate, own
from bagcert.rules.rule import Rule, rivals_only
from bagcert.rules.scores import IntegerScores, sums
from bagcert.threats import Regions


@final
@dataclass(frozen=True)
class Unanimous(Rule):
    """The class that some view of the image is unanimous about, certified if views that hide the patch are.

    Every score belongs to a view that hides some pixels of the image, and counts the questions that the view decides
    for a class; at the upper bound of the scores the view is *unanimous* about the class. The last view hides nothing.
    The scorer promises: whatever the image, its unanimous views agree. (`CleanserScorer` and `IntervalScorer` say what
    the questions are, and why this holds.)

    Inference. Predict the class of the unanimous views if there are any, else the argmax of the last view.

    Certificate:   for all l ∈ 𝓛 some view outside R(l) is unanimous about ŷ

    Proof. Let the patch sit at l. That view sees nothing of it, so its scores are the clean ones: it is unanimous about
    ŷ on the attacked image too. By the promise, no view is then unanimous about another class. So ŷ is predicted.

    The lead is the number of such views at the placement with the fewest.
    """

    name: ClassVar[str] = "unanimous"
    needs_views: ClassVar[bool] = True

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        _, most = scores.need_bounds(self.name)
        if scores.guarded:
            raise UsageError(
                "Rule 'unanimous' takes no guard band: its views promise nothing about other scores. Leave it out."
            )
        agreed = (scores.values == most).flatten(2).any(dim=2)  # b k
        if bool((agreed.sum(dim=1) > 1).any()):  # a spot check of the promise, not a proof
            raise UsageError(
                "Two unanimous views decide for different classes, so the scores break their promise. Use another rule."
            )
        fallback = scores.values[:, :, -1, -1].argmax(dim=1)
        return torch.where(agreed.any(dim=1), agreed.long().argmax(dim=1), fallback)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        predicted = self._predict(scores, regions)
        lead, place = self.witnesses(scores, predicted, regions).min(dim=1)
        rivals = sums(scores.values).long()
        rivals[torch.arange(len(rivals), device=rivals.device), predicted] = -1
        return Certificate(predicted, lead > 0, lead, regions.placements[place], None, rivals.argmax(dim=1))

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        """By the witnesses of each placement first.

        Most placements of an image that is not certified have none; of these, those come first where the best view
        that hides the patch decides least for the class.
        """
        _, most = scores.need_bounds(self.name)
        hide = ~regions.masks().flatten(1)  # n views
        counts = own(scores.values, classes).flatten(1)
        best = torch.stack([torch.where(hide, each, -1).amax(dim=1) for each in counts])
        weakness = self.witnesses(scores, classes, regions) * (most + 2) + best
        return rivals_only(weakness[:, None].repeat(1, scores.values.shape[1], 1), classes)

    def witnesses(self, scores: IntegerScores, predicted: Tensor, regions: Regions) -> Tensor:
        """How many views hide each placement and are unanimous about the predicted class, int64 [b n]."""
        _, most = scores.need_bounds(self.name)
        agree = (own(scores.values, predicted) == most).flatten(1)
        hide = ~regions.masks().flatten(1)  # n views
        return (agree.double() @ hide.T.double()).long()  # counts below 2**53 are exact
