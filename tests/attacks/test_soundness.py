"""No attack changes what is certified; the same attack does change a good share of what is not."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import ClassVar, final

import pytest
import torch
from torch import Tensor

from bagcert.attacks import Attacked, AttackSettings
from bagcert.attacks.goals import GOALS, against_sums
from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.rules import (
    Certificate,
    EveryRegion,
    IntegerScores,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    capped_sum,
)
from bagcert.scorers.residual import ResidualScorer
from bagcert.threats import Regions

pytestmark = pytest.mark.slow

NAMES = tuple("0123456789")
HARD = AttackSettings(steps=10, step_size=0.2, restarts=2, places=3)


def attacked(scorer: ResidualScorer, rule: Rule, patch: str | Tensor, digits: Batch) -> Attacked:
    """Every image attacked away from its predicted class, and checked once more by the defense itself."""
    defense = Defense.build(scorer, rule, patch, NAMES)
    before = digits.images.clone()
    result = defense.attack(digits.images, defense.predict(digits.images), HARD)
    assert torch.equal(digits.images, before), "the caller's images are kept"
    assert torch.equal(defense.predict(result.images), result.attacked)
    assert torch.equal(result.certificate.predicted, defense.predict(digits.images))
    return result


VOTE_RULES = [
    (LargestRegion(), "1x1"),
    (EveryRegion(), "1x1"),
    (Monotone(capped_sum(40)), "1x1"),
    (Masked(), "1x1"),
    (Masked(Fraction(1, 8)), "1x1"),
    (TwoMask(), "1x1"),
    (TwoMask(), "2x2"),
    (TwoMask(), "1x3,3x1"),
]


@pytest.mark.parametrize(("rule", "patch"), VOTE_RULES, ids=lambda value: getattr(value, "name", str(value)))
def test_certified_votes_stand_and_others_fall(rule: Rule, patch: str, votes: ResidualScorer, digits: Batch) -> None:
    check(attacked(votes, rule, patch, digits), patch)


@pytest.mark.parametrize("patch", ["1x1", "2x2"])
def test_certified_logits_stand_and_others_fall(patch: str, logits: ResidualScorer, digits: Batch) -> None:
    check(attacked(logits, TwoMask(), patch, digits), patch)


def check(result: Attacked, patch: str) -> None:
    certified = result.certificate.certified
    flipped = result.attacked != result.certificate.predicted
    assert result.runs > 200
    assert int(certified.sum()) >= 15
    assert not bool(result.unsound.any())
    assert float(flipped[~certified].double().mean()) > (0.3 if patch == "1x1" else 0.6)
    assert torch.equal(flipped, result.placement[:, 0] >= 0)


@pytest.mark.parametrize(
    ("rule", "patch"),
    [(EveryRegion(), "2*1x1"), (LargestRegion(), "2*1x1"), (TwoMask(), "2*1x1"), (EveryRegion(), "3*1x1")],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_several_patches_at_once(rule: Rule, patch: str, votes: ResidualScorer, digits: Batch) -> None:
    """Only pixels of that many patches change; certified images stand, and more of the others fall than to one."""
    digits = Batch(digits.images[:40], digits.labels[:40], digits.index[:40])
    result = attacked(votes, rule, patch, digits)
    count = int(patch[0])
    assert not bool(result.unsound.any())
    flipped = result.attacked != result.certificate.predicted
    assert torch.equal(flipped, result.placement[:, 0] >= 0) and torch.equal(flipped, result.others[:, 0, 0] >= 0)
    changed = (result.images != digits.images).any(dim=1).flatten(1).sum(dim=1)
    assert int(changed.max()) == count, "far apart or not"
    places = torch.cat([result.placement[:, None], result.others], dim=1)
    assert places.shape == (len(digits.images), count, 4)
    for image in flipped.nonzero().flatten().tolist():
        painted = {(row, column) for row, column, _, _ in places[image].tolist()}
        different = (result.images[image] != digits.images[image]).any(dim=0).nonzero().tolist()
        assert {tuple(pixel) for pixel in different} <= painted
    single = attacked(votes, rule, "1x1", digits)
    assert int(flipped.sum()) > int((single.attacked != single.certificate.predicted).sum())
    assert int(result.certificate.certified.sum()) < int(single.certificate.certified.sum())


def test_regions_of_any_form(votes: ResidualScorer, digits: Batch) -> None:
    masks = torch.zeros(3, 8, 8, dtype=torch.bool)
    masks[0, 2, 2:5] = masks[0, 2:5, 2] = True
    masks[1, 4, 4:7] = masks[1, 2:5, 6] = True
    masks[2, 7, 0] = True
    result = attacked(votes, TwoMask(), masks, digits)
    assert int(result.certificate.certified.sum()) > 20 and not bool(result.unsound.any())
    changed = (result.images != digits.images).any(dim=1)  # b h w
    flipped = result.attacked != result.certificate.predicted
    assert int(flipped.sum()) > 5
    inside = (changed[:, None] <= masks).flatten(2).all(dim=2).any(dim=1)
    assert bool(inside.all()) and not bool(changed[~flipped].any())


@final
@dataclass(frozen=True)
class Overclaiming(Rule):
    """The rule inside, with a certificate that takes a little more for granted than was proved."""

    inside: Rule
    by: int
    name: ClassVar[str] = "overclaiming"

    def _predict(self, scores: IntegerScores, regions: Regions) -> Tensor:
        return self.inside._predict(scores, regions)

    def _certify(self, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        found = self.inside._certify(scores, regions, exact=True)
        assert found.lead is not None
        return replace(found, certified=found.lead > -self.by)

    def leads(self, scores: IntegerScores, classes: Tensor, regions: Regions, rival: Tensor | None = None) -> Tensor:
        return EveryRegion().leads(scores, classes, regions)


@pytest.mark.parametrize(("inside", "by"), [(EveryRegion(), 9), (TwoMask(), 4)], ids=["every-region", "two-mask"])
def test_a_certificate_that_claims_too_much_is_caught(
    inside: Rule, by: int, votes: ResidualScorer, digits: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`every-region` without the size of R(l), 9 votes; `two-mask` with 4 votes more than were proved."""
    monkeypatch.setitem(GOALS, Overclaiming.name, against_sums)
    true = attacked(votes, Overclaiming(inside, 0), "1x1", digits)
    assert int(true.certificate.certified.sum()) > 15 and not bool(true.unsound.any())
    caught = attacked(votes, Overclaiming(inside, by), "1x1", digits).unsound
    assert bool(caught.any()) and not bool((caught & true.certificate.certified).any())
