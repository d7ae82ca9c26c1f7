"""The page of the shipped model on real pictures: no patch within a proof changes an answer."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bagcert.cli.serve import first_images
from bagcert.defense import load
from bagcert.pictures import Framing
from bagcert.server.samples import Sample
from tests.server.conftest import small_model
from tests.server.page.conftest import Served, opening, serving
from tests.server.page.looking import wait_for_patched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
SAMPLES = 24  # twice as many as are served: an attack breaks some of them


@pytest.fixture(scope="module")
def shipped(cifar10_dir: Path) -> Iterator[Served]:
    images, labels, classes = first_images("cifar10", SAMPLES, cifar10_dir, Framing.usual((32, 32)))
    samples = [
        Sample(image.permute(1, 2, 0).numpy(), classes[label])
        for image, label in zip(images, labels.tolist(), strict=True)
    ]
    with serving(small_model(load("cifar10-small")), samples) as served:
        yield served


def test_samples_keep_what_is_proven_of_them(browser: "Browser", shipped: Served) -> None:
    with opening(browser, shipped.url) as opener:
        page = opener()
        page.get_by_role("button", name="Put a patch on it").click()
        page.get_by_role("radio", name="Noise").check()
        for index, found in enumerate(shipped.found[:4]):
            page.locator(".thumb").nth(index).click()
            page.get_by_role("button", name="Move to the weakest spot").click()
            wait_for_patched(page)
            expect(page.locator("#clean-class")).to_have_text(shipped.names[index])
            expect(page.locator("#clean .tag")).to_have_text("Proven" if found.certified else "Not proven")
            tags = ["Held, as proven"] if found.certified else ["Held, not proven", "Changed"]
            assert page.locator("#patched .tag").text_content() in tags


def test_a_proven_picture_holds_and_an_unproven_one_breaks(browser: "Browser", shipped: Served) -> None:
    proven, broken = shipped.first(certified=True), shipped.breakable()
    with opening(browser, shipped.url) as opener:
        page = opener()
        page.locator(".thumb").nth(proven).click()
        page.get_by_role("button", name="Attack it").click()
        wait_for_patched(page)
        expect(page.locator("#patched .tag")).to_have_text("Held, as proven")
        page.locator(".thumb").nth(broken).click()  # the attack goes on with the next picture
        wait_for_patched(page)
        expect(page.locator("#patched .tag")).to_have_text("Changed")
        expect(page.locator("#patched .more")).to_contain_text("would hold back.")
