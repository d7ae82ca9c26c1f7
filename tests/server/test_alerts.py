"""Alerts in the server's answers, and attacks that must avoid them."""

import pytest

from bagcert.server.attacking import AttackJob, attack_picture, parse_patch
from bagcert.server.limits import Limits
from bagcert.server.model import to_answer, to_images
from tests.onnx.conftest import small_defense
from tests.server.conftest import answers_of, photos, small_model


@pytest.mark.parametrize("rule", ["detect", "two-mask:30"])
def test_answers_say_whether_there_is_an_alert(rule: str) -> None:
    defense = small_defense("logits", rule)
    found = defense.certify(to_images(photos()))
    told = [to_answer(each, scores=False, fail_safe=False) for each in answers_of(small_model(defense), photos())]
    assert found.alert is not None and found.detectable is not None
    assert [each.alert for each in told] == found.alert.tolist()
    assert [each.detectable for each in told] == found.detectable.tolist()
    assert True in [each.detectable for each in told]


def test_without_alerts_they_are_null() -> None:
    told = to_answer(answers_of(small_model(), photos()[:1])[0], scores=False, fail_safe=False)
    assert told.alert is None and told.detectable is None


@pytest.mark.parametrize("rule", ["detect", "two-mask:30"])
def test_no_attack_goes_unnoticed_where_it_is_detectable(rule: str) -> None:
    defense = small_defense("logits", rule)
    model = small_model(defense)
    clean = answers_of(model, photos())
    chosen = [number for number, each in enumerate(clean) if each.detectable][:4]
    for number in chosen:
        job = AttackJob(photos()[number], parse_patch(str(defense.threat), defense, Limits()), steps=10)
        (after,) = answers_of(model, [attack_picture(model, job).pixels])
        assert after.predicted == clean[number].predicted or after.alert
    assert chosen
