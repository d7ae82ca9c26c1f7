"""The page is for everyone: by keyboard, by screen reader, in light and dark, on a phone."""

from pathlib import Path

import pytest

from bagcert.threats.threat import Placement
from tests.server.page.conftest import Opener, Served
from tests.server.page.looking import place_of, wait_for_patched

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
CONTRAST = (Path(__file__).parent / "contrast.js").read_text(encoding="utf-8").split("*/", 1)[1].strip()
NAMELESS = """() => [...document.querySelectorAll('button, input, select, [tabindex="0"]')]
  .filter((each) => each.checkVisibility())
  .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim()))
  .map((each) => each.outerHTML)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_every_view_is_readable_and_fits(open_page: Opener, served: Served, scheme: str, width: int) -> None:
    page = open_page(color_scheme=scheme, viewport={"width": width, "height": 800})
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground.removeprefix("rgb(").removesuffix(")").split(","))) < 384) == (scheme == "dark")

    def check() -> None:
        assert page.evaluate(CONTRAST) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(NAMELESS) == []

    check()
    page.locator(".thumb").nth(served.breakable()).click()
    page.get_by_role("button", name="Attack it").click()
    wait_for_patched(page)
    page.get_by_role("radio", name="Evidence").check()
    check()
    for fill in ("Color", "Noise", "Another class"):
        page.get_by_role("radio", name=fill, exact=True).check()
        wait_for_patched(page)
        check()
    page.get_by_label("Keep it square").uncheck()
    page.locator(".thumb").nth(served.first(certified=True)).click()
    wait_for_patched(page)
    check()


def test_everything_works_by_keyboard_alone(open_page: Opener, served: Served) -> None:
    page = open_page()

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not reach {selector}.")

    tab_to(".skip")
    tab_to(".thumb")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".thumb").nth(1)).to_have_attribute("aria-pressed", "true")
    tab_to("#file")
    assert page.evaluate("getComputedStyle(document.querySelector('label[for=file]')).outlineStyle") == "solid"
    tab_to("#add")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("#patch")).to_be_focused()
    page.keyboard.press("ArrowDown")
    assert place_of(page) == Placement(6, 5, 2, 2)
    tab_to("input[name=fill]")
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Noise")).to_be_checked()
    tab_to("#height")
    page.keyboard.press("ArrowRight")
    assert place_of(page) == Placement(6, 5, 3, 3)
    wait_for_patched(page)
    expect(page.locator("#live")).to_contain_text("3 by 3 patch")
    tab_to("#votes button")
    page.keyboard.press("Space")
    expect(page.locator("#evidence")).to_be_visible()
    expect(page.locator("#votes button").first).to_have_attribute("aria-pressed", "true")


def test_the_patch_says_where_it_is(open_page: Opener) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    patch = page.get_by_role("application", name="Patch, 2 by 2 pixels, at row 5, column 5")
    expect(patch).to_be_visible()
    expect(patch).to_have_accessible_description("Drag the patch, or click where it should go. Arrow keys "
        "move it, + and − resize it, Delete removes it.")  # fmt: skip


def test_a_finger_drags_the_patch_and_taps_beside_it(open_page: Opener) -> None:
    page = open_page(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    page.get_by_role("button", name="Put a patch on it").tap()
    frame = page.locator("#frame").bounding_box()
    assert frame is not None and frame["y"] >= 0  # scrolled back into view
    left, top, pixel = frame["x"], frame["y"], frame["width"] / 12
    page.touchscreen.tap(left + 2.9 * pixel, top + 8.9 * pixel)
    assert place_of(page) == Placement(8, 2, 2, 2)
    touch = page.context.new_cdp_session(page)
    for kind, points in (
        ("touchStart", [{"x": left + 3.1 * pixel, "y": top + 8.6 * pixel}]),
        ("touchMove", [{"x": left + 7.0 * pixel, "y": top + 5.0 * pixel}]),
        ("touchMove", [{"x": left + 9.0 * pixel, "y": top + 2.5 * pixel}]),
        ("touchEnd", []),
    ):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    assert place_of(page) == Placement(2, 8, 2, 2)
    assert page.locator("#frame").bounding_box() == frame  # and the page did not scroll


def test_nothing_moves_if_reduced_motion_is_set(open_page: Opener) -> None:
    moving = "() => document.getAnimations().length + [...document.querySelectorAll('*')].filter("
    moving += "(each) => parseFloat(getComputedStyle(each).transitionDuration) > 0).length"
    page = open_page()
    page.get_by_role("button", name="Attack it").click()
    assert page.evaluate(moving) == 0
    wait_for_patched(page)
    assert page.evaluate(moving) == 0
