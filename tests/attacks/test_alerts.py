"""An attack on the answer or an alert: it must change the class and avoid the alert; no proof breaks."""

from dataclasses import replace

import pytest
import torch

from bagcert.attacks.goals import Aim, AlertGoal, SumGoal
from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.rules import Certificate, Detect, IntegerScores, Rule, TwoMask
from bagcert.scorers.residual import ResidualScorer
from bagcert.threats import Footprint, Regions, parse_threat
from tests.attacks.test_soundness import HARD, NAMES

pytestmark = pytest.mark.slow
RULES = [
    (Detect(), "1x1"),
    (Detect(), "2x2"),
    (Detect(6), "2x2"),
    (TwoMask(alert_above=3), "2x2"),
]


@pytest.mark.parametrize(("rule", "patch"), RULES, ids=lambda value: getattr(value, "written", str(value)))
@pytest.mark.parametrize("kind", ["votes", "logits"])
def test_detectable_answers_stand_or_alert(
    rule: Rule, patch: str, kind: str, digits: Batch, request: pytest.FixtureRequest
) -> None:
    scorer: ResidualScorer = request.getfixturevalue(kind)
    above = (rule.alert_above or 0) * (1 if kind == "votes" else scorer_unit(scorer))
    defense = Defense.build(scorer, rule.alerting(above), patch, NAMES)
    result = defense.attack(digits.images, defense.predict(digits.images), HARD)
    clean, after = result.certificate, defense.certify(result.images)
    assert clean.detectable is not None and clean.alert is not None and after.alert is not None
    assert not bool(result.unsound.any())
    assert int(clean.detectable.sum()) >= 15
    fooled = result.attacked != clean.predicted
    assert not bool((fooled & after.alert).any()), "a class that changed under an alert is no success"
    assert not bool((fooled & (clean.detectable | clean.certified)).any())
    assert not bool((fooled & clean.alert).any()), "wrong already"
    assert torch.equal(after.predicted, result.attacked)
    open_to = ~(clean.detectable | clean.certified | clean.alert)
    if above:  # with a threshold of 0 hardly any image is neither detectable nor alerted
        assert int(fooled[open_to].sum()) >= 1


@pytest.mark.parametrize("rule", [Detect(4), TwoMask(alert_above=4)], ids=lambda rule: rule.written)
def test_two_patches_at_once(rule: Rule, votes: ResidualScorer, digits: Batch) -> None:
    """Detectable answers stand or alert; of the others some fall, without an alert and to two pixels at most."""
    images = digits.images[:25]
    result = Defense.build(votes, rule, "2*1x1", NAMES).attack(images, None, HARD)  # type: ignore[arg-type]
    clean = result.certificate
    assert clean.detectable is not None and clean.alert is not None and not bool(result.unsound.any())
    assert int(clean.detectable.sum()) >= 3
    fooled = result.attacked != clean.predicted
    assert int(fooled[~clean.alert].sum()) >= 1
    assert int((result.images != images).any(dim=1).flatten(1).sum(dim=1).max()) == 2
    after = Defense.build(votes, rule, "2*1x1", NAMES).certify(result.images)
    assert after.alert is not None and not bool((fooled & after.alert).any())


def scorer_unit(scorer: ResidualScorer) -> int:
    return scorer.step.unit


def test_an_attack_finds_what_is_wrongly_called_detectable(
    votes: ResidualScorer, digits: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify = Detect._certify

    def overclaiming(self: Detect, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        found = certify(self, scores, regions, True)
        assert found.lead is not None
        return replace(found, detectable=found.lead > -12)

    monkeypatch.setattr(Detect, "_certify", overclaiming)
    defense = Defense.build(votes, Detect(6), "2x2", NAMES)
    assert bool(defense.attack(digits.images, None, HARD).unsound.any())  # type: ignore[arg-type]


def test_the_loss_is_below_zero_where_another_class_answers_without_an_alert() -> None:
    masks = Footprint.identity((1, 4)).regions(parse_threat("1x1", (1, 4)))
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(0, 4, (400, 3, 1, 4), generator=draw).float()
    totals = scores.sum(dim=(2, 3))
    predicted = (totals.argmax(dim=1) + torch.randint(0, 2, (400,), generator=draw)) % 3
    for above, unit in ((0, 1), (4, 2)):
        losses = AlertGoal(SumGoal(Aim(predicted, None, unit)), masks, above).losses(scores)
        rivals = totals.scatter(1, predicted[:, None], -1).argmax(dim=1)
        outside = totals[:, :, None] - masks.sums(scores)
        quiet = (outside - outside[torch.arange(400), rivals][:, None]).flatten(1).amax(dim=1) < above / unit
        ahead = totals[torch.arange(400), rivals] > totals[torch.arange(400), predicted]
        assert torch.equal(losses < 0, quiet & ahead)
        assert above == 0 or 0 < int((losses < 0).sum()) < 400
