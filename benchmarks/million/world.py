"""The images that a case may attack: a slice of the test images, what is proven of them, and where least is left."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

import bagcert
from bagcert.attacks.goals import others
from bagcert.attacks.placements import Placements, weakest_placements
from bagcert.rules import Certificate, IntegerScores
from bagcert.tensors import Images, Labels

WEAKEST = 8  # placements per image
AT_ONCE = 16  # images whose placements are ranked at a time


@dataclass(frozen=True, eq=False)
class Slice:
    """Some test images, and the scores of one model for them."""

    images: Images
    labels: Labels
    index: Tensor  # their numbers in the test split
    scores: IntegerScores


class World:
    """One defense and a slice of the test images."""

    def __init__(self, defense: bagcert.Defense, seen: Slice) -> None:
        self.defense, self.seen = defense, seen
        self.certificate = defense.certify_integers(seen.scores, exact=False)
        self.placements = Placements.of(defense.threat, defense.scorer.footprint, every=True).to(defense.device)
        self._ranked: dict[int, Tensor] = {}

    @cached_property
    def proven(self) -> Tensor:
        return self.defense.rule.proven(self.certificate)

    @cached_property
    def open(self) -> Tensor:
        """Answered rightly, and nothing proven: what an attack may change."""
        right = self.certificate.predicted == self.seen.labels
        alert = self.certificate.alert
        return right & ~self.proven & (True if alert is None else ~alert)

    @property
    def predicted(self) -> Tensor:
        return self.certificate.predicted

    def weakest(self, image: Tensor) -> Tensor:
        """The weakest placements of images [n] against the class that comes second, weakest first: [n WEAKEST]."""
        missing = sorted(set(image.tolist()) - self._ranked.keys())
        for part in (missing[start : start + AT_ONCE] for start in range(0, len(missing), AT_ONCE)):
            some = torch.tensor(part, device=self.defense.device)
            scores, predicted = self.seen.scores.part(some), self.predicted[some]
            rival = others(scores.values.sum(dim=(2, 3)).double(), predicted).argmax(dim=1)
            leads = self.defense.rule.leads(scores, predicted, self.placements.regions, rival)
            for each, place in zip(part, weakest_placements(leads, WEAKEST)[0], strict=True):
                self._ranked[each] = place
        return torch.stack([self._ranked[each] for each in image.tolist()])

    def broken(self, scores: IntegerScores, image: Tensor) -> Tensor:
        """By the scores of attacked images, whether each attack on image [n] succeeded, by the rule's own inference.

        Another class, and no alert; a class that is itself certified may not change in spite of an alert either.
        """
        rule, before = self.defense.rule, self.certificate
        if rule.alert_above is None:
            return rule.predict(scores, self.defense.regions) != self.predicted[image]
        found: Certificate = rule.certify(scores, self.defense.regions, exact=False)
        assert found.alert is not None
        return (found.predicted != self.predicted[image]) & (~found.alert | before.certified[image])
