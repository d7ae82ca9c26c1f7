"""How the page asks the server: only about what is shown, never too often, and with a message if there is no answer."""

from typing import TYPE_CHECKING

import pytest

from bagcert.threats.threat import Placement
from tests.onnx.conftest import small_defense
from tests.server.conftest import small_model
from tests.server.page.conftest import Opener, Served, opening, serving, small_samples
from tests.server.page.looking import place_of, wait_for_patched

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
WATCH = """() => {
  window.said = [];
  const card = document.getElementById('patched');
  new MutationObserver(() => window.said.push(card.textContent))
    .observe(card, { childList: true, characterData: true, subtree: true });
}"""


def test_an_answer_to_an_older_patch_is_never_shown(open_page: Opener, served: Served) -> None:
    page = open_page()
    held: list[Route] = []

    def hold_first(route: "Route") -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/certify*", hold_first)
    page.evaluate(WATCH)
    with page.expect_request("**/v1/certify*"):
        page.get_by_role("button", name="Put a patch on it").click()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    answered = held[0].fetch().json()
    answered["answers"][0] |= {"class": 2, "name": "an old answer"}
    held[0].fulfill(json=answered)
    wait_for_patched(page)
    found = served.patched(0, Placement(5, 2, 2, 2), (255, 212, 0))
    assert place_of(page) == Placement(5, 2, 2, 2)
    expect(page.locator("#patched-class")).to_contain_text(served.name(found))
    said = page.evaluate("window.said")
    assert said and not any("an old answer" in each for each in said)


def test_a_drag_asks_once_it_rests(open_page: Opener) -> None:
    """Several steps at once make one request."""
    page, asked = open_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="Put a patch on it").click()
    wait_for_patched(page)
    asked.clear()
    page.evaluate("""() => {
      for (const key of ['ArrowLeft', 'ArrowLeft', 'ArrowUp', 'ArrowUp', 'ArrowUp']) {
        document.getElementById('patch').dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
      }
    }""")
    wait_for_patched(page)
    assert place_of(page) == Placement(2, 3, 2, 2)
    assert len(asked) == 1


def test_a_busy_server_is_asked_again(plain_page: "Page") -> None:
    refused: list[Route] = []

    def refuse_once(route: "Route") -> None:
        if refused:
            route.continue_()
        else:
            refused.append(route)
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"detail": "The server is busy."})

    plain_page.route("**/v1/certify*", refuse_once)
    plain_page.get_by_role("button", name="Put a patch on it").click()
    wait_for_patched(plain_page)
    expect(plain_page.locator("#patched .tag")).not_to_be_empty()
    assert len(refused) == 1


def test_too_many_pictures_for_one_request_are_asked_in_several(plain_page: "Page", served: Served) -> None:
    counts = []

    def take_three(route: "Route") -> None:
        counts.append((route.request.post_data_buffer or b"").count(b'name="files"'))
        if counts[-1] > 3:
            route.fulfill(status=413, json={"detail": "Scores are limited to 3 files per request."})
        else:
            route.continue_()

    plain_page.route("**/v1/certify*", take_three)
    plain_page.reload()
    expect(plain_page.locator("#clean-class")).to_have_text(served.names[0])
    expect(plain_page.locator(".thumb[data-proven=true], .thumb[data-proven=false]")).to_have_count(12)
    assert counts == [12, 6, 3, 3, 6, 3, 3]


def test_a_server_that_is_gone_is_reported(plain_page: "Page") -> None:
    plain_page.route("**/v1/certify*", lambda route: route.abort())
    plain_page.get_by_role("button", name="Put a patch on it").click()
    expect(plain_page.get_by_role("alert")).to_have_text("The server cannot be reached. Is it still running?")
    expect(plain_page.locator("#patched-class")).to_have_text("No answer")
    plain_page.unroute("**/v1/certify*")
    plain_page.locator("#patch").press("ArrowLeft")
    expect(plain_page.locator("#patched .tag")).not_to_be_empty()
    expect(plain_page.get_by_role("alert")).to_be_hidden()


@pytest.mark.parametrize("other", [{"threat": "3x3"}, {"arithmetic": "another"}, {"weights_sha256": "1" * 64}])
def test_another_model_behind_the_same_address_is_noticed(open_page: Opener, other: dict[str, str]) -> None:
    page = open_page()

    def answer_by_another(route: "Route") -> None:
        told = route.fetch().json()
        route.fulfill(json=told | other)

    page.route("**/v1/certify*", answer_by_another)
    page.get_by_role("button", name="Put a patch on it").click()
    expect(page.get_by_role("alert")).to_have_text(
        "The server has switched to another model, program, rule or patch. Please reload this page."
    )
    expect(page.locator("#patched .tag")).to_be_empty()


def test_a_token_is_asked_for(browser: "Browser") -> None:
    model = small_model()
    with serving(model, small_samples(model), token="open sesame") as guarded:
        page = browser.new_context().new_page()
        page.goto(guarded.url)
        for word in ("a guess", "ein Schlüssel", "open sesame"):
            expect(page.get_by_label("This server requires a token")).to_be_focused()
            page.get_by_label("This server requires a token").fill(word)
            page.keyboard.press("Enter")
            if word != "open sesame":
                expect(page.get_by_role("alert")).to_have_text("The server does not accept this token.")
        expect(page.locator("#clean-class")).to_have_text(guarded.names[0])
        expect(page.locator("#token-form")).to_be_hidden()
        expect(page.get_by_role("alert")).to_be_hidden()
        page.context.close()


@pytest.mark.parametrize("rule", ["every-region", "masked"])
def test_other_rules_are_served_as_well(browser: "Browser", rule: str) -> None:
    model = small_model(small_defense("heaviside", rule))
    with serving(model, small_samples(model)) as each, opening(browser, each.url) as opener:
        page = opener()
        expect(page.locator("#clean-class")).to_have_text(each.names[0])
        expect(page.locator("#votes-about")).to_contain_text("Share of the 144 small windows that vote for each class.")
        expect(page.locator("#info")).to_contain_text(f"rule {rule}")
