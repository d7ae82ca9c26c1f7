"""What a certificate says of itself, word by word, and the small questions about rules by their names."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from bagcert.certify import certify_scores
from bagcert.errors import UsageError
from bagcert.rules import RULES, Certificate, TwoMask, detects, raises_alerts, read_scores


def three(**fields: Any) -> Certificate:
    """Proven, detectable, alerted."""
    flags = torch.tensor([[True, False, False], [False, True, False], [False, False, True]])
    places = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 1, 2]])
    made = Certificate(
        torch.tensor([0, 1, 2]), flags[0], torch.tensor([7, -8, 9]), places, weakest_class=torch.tensor([1, 2, 0])
    )
    return replace(made, **{"detectable": flags[1], "alert": flags[2], **fields})


def test_one_image_in_words() -> None:
    assert [repr(each) for each in three(names=("cat", "dog", "ship"))] == [
        "Certificate(cat, certified, lead 7 over dog at 2x3 at row 0, column 1)",
        "Certificate(dog, not certified, detectable, lead -8 over ship at 6x7 at row 4, column 5)",
        "Certificate(ship, not certified, alert, lead 9 over cat at 1x2 at row 8, column 9)",
    ]
    bare = "Certificate(class 1, not certified)"
    for lacking in ("lead", "weakest_region", "weakest_class"):
        assert repr(three(alert=None, detectable=None, **{lacking: None})[1]) == bare
    assert three().names == ()


def test_several_images_in_words() -> None:
    assert repr(three()) == "Certificate(3 images, 1 certified, 1 detectable, 1 alert)"
    assert repr(three(alert=None)[:2]) == "Certificate(2 images, 1 certified, 1 detectable)"
    assert repr(three(alert=None, detectable=None)) == "Certificate(3 images, 1 certified)"


def test_the_table_of_a_notebook() -> None:
    full = (
        "<table><tr><th>image</th><th>class</th><th>proven</th>"
        "<th>lead</th><th>closest rival</th><th>weakest place</th></tr>"
        "<tr><td>0</td><td>class 0</td><td>yes</td><td>7</td><td>class 1</td><td>2x3 at 0, 1</td></tr>"
        "<tr><td>1</td><td>class 1</td><td>or an alert</td><td>-8</td><td>class 2</td><td>6x7 at 4, 5</td></tr>"
        "<tr><td>2</td><td>class 2</td><td>no</td><td>9</td><td>class 0</td><td>1x2 at 8, 9</td></tr></table>"
    )
    assert three()._repr_html_() == full
    for lacking in ("weakest_region", "weakest_class"):
        short = three(alert=None, detectable=None, **{lacking: None})._repr_html_()
        assert short == (
            "<table><tr><th>image</th><th>class</th><th>proven</th></tr>"
            "<tr><td>0</td><td>class 0</td><td>yes</td></tr><tr><td>1</td><td>class 1</td><td>no</td></tr>"
            "<tr><td>2</td><td>class 2</td><td>no</td></tr></table>"
        )
    assert three(lead=None)._repr_html_().count("<td>") == 9
    many = Certificate.concatenate([three()] * 7)
    assert "caption" not in many[:20]._repr_html_()
    assert "<caption>the first 20 of 21 images</caption>" in many._repr_html_()


def test_images_by_number() -> None:
    assert int(three()[-3].predicted) == 0 and int(three()[2].predicted) == 2
    for number in (-4, 3):
        with pytest.raises(IndexError, match=re.escape(f"image {number} of 3")):
            three()[number]


def test_without_a_defense_nothing_is_drawn() -> None:
    made = certify_scores(torch.zeros(1, 3, 8, 8), "2x2")
    with pytest.raises(
        UsageError, match=r"^Only a certificate of Defense\.certify can be drawn: others know no network\.$"
    ):
        made.show(None)


def test_scores_say_what_they_are() -> None:
    scores = torch.zeros(4, 3, 8, 7, dtype=torch.int)
    assert repr(read_scores(scores)) == "IntegerScores(4 images, 3 classes, 8x7, 0..1)"
    assert repr(read_scores(scores, None)) == "IntegerScores(4 images, 3 classes, 8x7, any numbers)"


def test_what_is_known_of_a_rule_by_its_name() -> None:
    assert {name: detects(name) for name in RULES} == {name: name == "detect" for name in RULES}
    assert {name: raises_alerts(name) for name in RULES} == {name: name == "detect" for name in RULES}
    assert detects("detect:4") is True and detects("two-mask:4") is False and detects("no-rule:4") is False
    assert raises_alerts("detect:4") is True and raises_alerts("two-mask:4") is True
    assert raises_alerts("no-rule") is False and detects("no-rule") is False
    with pytest.raises(UsageError, match="whole number of score units >= 0, but is -1"):
        TwoMask(alert_above=-1)
