"""What a defense says of one picture if its rule raises alerts: proven, detectable, alerted or neither."""

from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.defense import Defense
from bagcert.threats import parse_threat
from tests.rows.digit_runs import DIGITS, save_digit_run

IMAGES = next(iter(DIGITS.split("test").batches(96, torch.device("cpu")))).images
SENTENCES = {
    "proven": "can change this",
    "detectable": "can change this without an alert",
    "alerted": "with an alert: a patch may have made this",
    "neither": "not proven",
}


@pytest.fixture
def defense(tmp_path: Path) -> Defense:
    return bagcert.load(save_digit_run(tmp_path / "run", "logits", "two-mask"))


@pytest.mark.parametrize(("rule", "patch"), [("two-mask:2000", "2x2"), ("detect:100", "2x2"), ("two-mask:0", "1x1")])
def test_answers_say_what_certificates_say(defense: Defense, rule: str, patch: str) -> None:
    facing = defense.against(patch, rule)
    found = facing.certify(IMAGES)
    answers = facing.answers(facing.scores(IMAGES), [(8, 8)] * len(IMAGES))
    assert found.alert is not None and found.detectable is not None
    assert [answer.alert for answer in answers] == found.alert.tolist()
    assert [answer.detectable for answer in answers] == found.detectable.tolist()
    for answer in answers:
        assert answer.outcome in SENTENCES and str(answer).endswith(SENTENCES[answer.outcome])
        assert (answer.outcome == "proven") == answer.certified and (answer.outcome == "alerted") == answer.alert
        assert answer.to_dict()["alert"] is answer.alert and answer.to_dict()["detectable"] is answer.detectable
        if facing.rule.detects:
            assert answer.square == 0 and not answer.proven, "the class may change"
    assert len({answer.outcome for answer in answers}) > 1


def test_a_certificate_brings_its_own_alerts(defense: Defense) -> None:
    """What is not detectable against the defense's patch may be against the smaller one that is drawn."""
    facing, small = defense.against("2x2", "detect:100"), parse_threat("1x1", (8, 8))
    smaller = facing.certify(IMAGES, patch=small)
    answers = facing.answers(facing.scores(IMAGES), [(8, 8)] * len(IMAGES))
    told = [answer.certified_by(each, small) for answer, each in zip(answers, smaller, strict=True)]
    assert smaller.detectable is not None and smaller.alert is not None
    assert [answer.detectable for answer in told] == smaller.detectable.tolist()
    assert [answer.alert for answer in told] == smaller.alert.tolist()
    assert [answer.detectable for answer in told] != [answer.detectable for answer in answers]


def test_without_alerts_nothing_is_said_of_them(defense: Defense) -> None:
    answer = defense.answers(defense.scores(IMAGES[:1]), [(8, 8)])[0]
    assert answer.alert is None and answer.detectable is None and answer.outcome in ("proven", "neither")
