"""The words of the page: a proof is claimed if there is one for a patch of that size, and only then."""

from typing import Any

import pytest

from tests.server.page.conftest import Opener

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
MODEL = {"threat": "5x5", "height": 32, "width": 32, "square": 5, "classes": ["cat", "dog"]}
PROVEN = {"class": 0, "name": "cat", "certified": True, "square": 5}
PARTLY = {"class": 0, "name": "cat", "certified": False, "square": 3}
OPEN = {"class": 0, "name": "cat", "certified": False, "square": 0}
DOG = {"class": 1, "name": "dog", "certified": False, "square": 0}
SURE_DOG = {"class": 1, "name": "dog", "certified": True, "square": 5}
SAY = "async ([name, ...inputs]) => (await import('/words.js'))[name](...inputs)"


def patch(height: int, width: int) -> dict[str, int]:
    return {"row": 0, "column": 0, "height": height, "width": width}


# The clean answer, the answer with the patch, the patch, the threat; then the tag and part of the text.
CASES: list[tuple[dict[str, Any], dict[str, Any], dict[str, int], str, str, str]] = [
    (PROVEN, PROVEN, patch(5, 5), "5x5", "Held, as proven", "within the proven 5×5"),
    (PROVEN, OPEN, patch(1, 5), "5x5", "Held, as proven", "This 1×5 patch is within the proven 5×5"),
    (PROVEN, OPEN, patch(1, 6), "5x5", "Held, not proven", "This 1×6 patch is larger than 5×5: no proof covers it"),
    (PROVEN, DOG, patch(6, 6), "5x5", "Changed", "larger than 5×5: no proof covers it"),
    (PROVEN, DOG, patch(5, 5), "5x5", "Contradicts the proof", "and yet the answer changed"),
    (PARTLY, PARTLY, patch(3, 3), "5x5", "Held, as proven", "within the proven 3×3"),
    (PARTLY, PARTLY, patch(4, 3), "5x5", "Held, not proven", "There is no proof against 4×3 patches"),
    (PARTLY, DOG, patch(3, 2), "5x5", "Contradicts the proof", "and yet the answer changed"),
    (OPEN, OPEN, patch(1, 1), "5x5", "Held, not proven", "There is no proof against 1×1 patches"),
    (OPEN, DOG, patch(5, 5), "5x5", "Changed", "There is no proof against 5×5 patches"),
    (PROVEN, PROVEN, patch(2, 12), "5x5,2x12", "Held, as proven", "within the proven 5×5 or 2×12"),
    (PROVEN, PROVEN, patch(3, 12), "5x5,2x12", "Held, not proven", "larger than 5×5 or 2×12"),
]


def test_words_for_a_patched_picture(open_page: Opener) -> None:
    page = open_page()
    for clean, patched, place, threat, tag, said in CASES:
        words = page.evaluate(SAY, ["patchedWords", clean, patched, place, MODEL | {"threat": threat}])
        assert (words["tag"], said in words["proof"]) == (tag, True), words
        assert words["title"] == ("Still " if clean["class"] == patched["class"] else "Now ") + patched["name"]
        assert (words["tone"] == "good") == (tag == "Held, as proven")


ALERTED = OPEN | {"alert": True, "detectable": False}
DETECTABLE = OPEN | {"alert": False, "detectable": True}
NEITHER = OPEN | {"alert": False, "detectable": False}
CAUGHT_DOG, MISSED_DOG = DOG | {"alert": True}, DOG | {"alert": False}


def test_words_for_the_four_outcomes(open_page: Opener) -> None:
    page = open_page()
    outcomes = (PROVEN | {"alert": False, "detectable": True}, DETECTABLE, ALERTED, NEITHER)
    said = [page.evaluate(SAY, ["cleanWords", clean, MODEL]) for clean in outcomes]
    assert [each["tag"] for each in said] == ["Proven", "Answer or alert", "Alert", "Not proven"]
    assert [each["tone"] for each in said] == ["good", "good", "bad", "open"]
    marks = [page.evaluate("async (each) => (await import('/alerts.js')).outcome(each)", each) for each in outcomes]
    assert marks == ["proven", "answer or alert", "alert", "not proven"]
    assert said[1]["proof"] == "No 5×5 patch anywhere can change this without an alert."
    assert "do not use this answer" in said[2]["proof"]
    for each in said[1:3]:
        assert each["more"].endswith("An attacker can always provoke an alert.")


def test_words_for_a_patch_under_the_promise_of_an_alert(open_page: Opener) -> None:
    page = open_page()
    for clean, patched, place, tag, tone in (
        (DETECTABLE, CAUGHT_DOG, patch(5, 5), "Alert, as promised", "good"),
        (DETECTABLE, ALERTED, patch(5, 5), "Alert, as promised", "good"),
        (DETECTABLE, NEITHER, patch(5, 5), "Held, as promised", "good"),
        (DETECTABLE, MISSED_DOG, patch(5, 5), "Contradicts the proof", "bad"),
        (DETECTABLE, MISSED_DOG, patch(6, 5), "Changed", "bad"),
        (NEITHER, CAUGHT_DOG, patch(5, 5), "Alert", "open"),
        (NEITHER, MISSED_DOG, patch(5, 5), "Changed", "bad"),
        (PROVEN | {"detectable": True}, ALERTED, patch(5, 5), "Held, as proven", "good"),
    ):
        words = page.evaluate(SAY, ["patchedWords", clean, patched, place, MODEL])
        assert (words["tag"], words["tone"]) == (tag, tone)
        assert words["title"].endswith(patched["name"]) and words["proof"] and words["more"]


def test_what_a_careful_system_would_do(open_page: Opener) -> None:
    page = open_page()
    for patched, said in ((DOG, "would hold back."), (SURE_DOG, "would accept this one.")):
        words = page.evaluate(SAY, ["patchedWords", OPEN, patched, patch(8, 8), MODEL])
        assert words["more"].endswith(said)


def test_words_for_a_clean_picture(open_page: Opener) -> None:
    page = open_page()
    said = [page.evaluate(SAY, ["cleanWords", clean, MODEL]) for clean in (PROVEN, PARTLY, OPEN)]
    assert said[0]["proof"] == "No 5×5 patch anywhere can change this." and "all 784 places" in said[0]["more"]
    assert [each["tag"] for each in said] == ["Proven", "Not proven", "Not proven"]
    assert said[1]["more"] == "Smaller patches are ruled out: no 3×3 patch anywhere can change this."
    assert "does not mean that one would succeed" in said[2]["more"]
    both = page.evaluate(SAY, ["cleanWords", PROVEN, MODEL | {"threat": "5x5,2x12"}])
    assert both["proof"] == "No 5×5 or 2×12 patch anywhere can change this."
    assert "all 1,435 places" in both["more"]  # 28 * 28 + 31 * 21


def test_the_largest_patch_is_that_of_the_answer(open_page: Opener) -> None:
    page = open_page()
    said = [page.evaluate(SAY, ["largestWords", clean, MODEL]) for clean in (PROVEN, PARTLY, OPEN)]
    assert [each["side"] for each in said] == ["5×5", "3×3", "none"]
    assert said[0]["share"] == "2.4 % of the picture; the largest this server tries"
    assert said[1]["share"] == "0.9 % of the picture; tried up to 5×5"
