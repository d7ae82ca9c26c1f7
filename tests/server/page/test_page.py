"""The page, from choosing a picture to breaking it: it says what the model says."""

import pytest

from bagcert.threats.threat import Placement
from tests.server.page.conftest import Opener, Served
from tests.server.page.looking import place_of, wait_for_patched

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
YELLOW = (255, 212, 0)


def test_samples_come_with_their_class_and_proof(open_page: Opener, served: Served) -> None:
    page = open_page()
    proven, open_one = served.first(certified=True), served.first(certified=False)
    for index, found in enumerate(served.found):
        mark = "proven" if found.certified else "not proven"
        name = f"Sample {index + 1}: {served.samples[index].name}, {mark}"
        expect(page.get_by_role("button", name=name, exact=True)).to_be_visible()
    page.locator(".thumb").nth(proven).click()
    expect(page.locator("#clean-class")).to_have_text(served.names[proven])
    expect(page.locator("#clean .proof")).to_have_text("No 2×2 patch anywhere can change this.")
    expect(page.locator("#clean .side")).to_have_text("2×2")
    expect(page.locator("#live")).to_contain_text("Proven. No 2 by 2 patch anywhere can change this.")
    page.locator(".thumb").nth(open_one).click()
    expect(page.locator("#clean-class")).to_have_text(served.names[open_one])
    expect(page.locator("#clean .tag")).to_have_text("Not proven")
    side = served.found[open_one].square
    expect(page.locator("#clean .side")).to_have_text(f"{side}×{side}" if side else "none")
    page.locator(".thumb").last.click()
    expect(page.locator("#clean .own")).to_contain_text("The answer is wrong: the label in the data set is ")


def test_a_patch_is_moved_and_sized_by_keys_and_mouse(open_page: Opener, served: Served) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    expect(page.locator("#patch")).to_be_focused()
    assert place_of(page) == Placement(5, 5, 2, 2)
    for key in ("ArrowUp", "ArrowLeft", "Shift+ArrowRight", "ArrowDown", "ArrowDown", "+", "+", "-"):
        page.keyboard.press(key)
    assert place_of(page) == Placement(6, 8, 3, 3)
    frame = page.locator("#frame").bounding_box()
    assert frame is not None
    pixel = frame["width"] / 12
    page.mouse.move(frame["x"] + 8.3 * pixel, frame["y"] + 6.8 * pixel)
    page.mouse.down()
    page.mouse.move(frame["x"] + 3.1 * pixel, frame["y"] + 8.1 * pixel, steps=5)
    page.mouse.up()
    assert place_of(page) == Placement(7, 3, 3, 3)
    page.mouse.click(frame["x"] + 11.9 * pixel, frame["y"] + 0.1 * pixel)  # beside it: it comes, as far as it can
    assert place_of(page) == Placement(0, 9, 3, 3)
    wait_for_patched(page)
    found = served.patched(0, Placement(0, 9, 3, 3), YELLOW)
    title = "Still" if found.predicted == served.found[0].predicted else "Now"
    expect(page.locator("#patched-class")).to_have_text(f"{title} {served.name(found)}")
    expect(page.locator("#patched .proof")).to_have_text("This 3×3 patch is larger than 2×2: no proof covers it.")
    page.locator("#patch").press("Delete")
    expect(page.locator("#patch")).to_be_hidden()
    expect(page.get_by_role("button", name="Put a patch on it")).to_be_focused()


def test_a_proven_picture_holds_under_attack(open_page: Opener, served: Served) -> None:
    page = open_page()
    index = served.first(certified=True)
    page.locator(".thumb").nth(index).click()
    page.get_by_role("button", name="Attack it").click()
    wait_for_patched(page)
    expect(page.locator("#patched-class")).to_have_text(f"Still {served.names[index]}")
    expect(page.locator("#patched .tag")).to_have_text("Held, as proven")
    expect(page.locator("#patched .proof")).to_contain_text("This 2×2 patch is within the proven 2×2")
    assert place_of(page) == served.found[index].weakest


def test_an_unproven_picture_breaks_before_your_eyes(open_page: Opener, served: Served) -> None:
    page = open_page()
    index = served.breakable()
    page.locator(".thumb").nth(index).click()
    page.get_by_role("button", name="Attack it").click()
    wait_for_patched(page)
    expect(page.locator("#patched .tag")).to_have_text("Changed")
    expect(page.locator("#patched .more")).to_contain_text(f"The patch turned {served.names[index]} into ")
    expect(page.locator("#attack-info")).to_contain_text("It changed the answer after ")
    expect(page.locator("#live")).to_contain_text("With the patch: Now ")
