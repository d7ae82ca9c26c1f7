"""The visitor's own pictures are shown, certified and patched as the network sees them."""

import base64
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from bagcert.answers import Answer
from bagcert.pictures import Framing, Pixels
from tests.server.conftest import file_of, photos
from tests.server.page.conftest import Opener, Served
from tests.server.page.looking import shown_pixels

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
FRAMING = Framing((12, 12), 12)
DROPPED = """(bytes) => {
  const file = new File([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))], 'dropped.png');
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(file);
  for (const kind of ['dragover', 'drop']) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""


def large_photo() -> Pixels:
    """A bright picture of 47x60 pixels, whose class is certified."""
    return np.kron(photos()[-1], np.ones((5, 5, 1), np.uint8))[:47]


def in_base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def test_samples_are_shown_to_the_last_bit(open_page: Opener, served: Served) -> None:
    page = open_page()
    for index, sample in enumerate(served.samples):
        page.locator(".thumb").nth(index).click()
        assert np.array_equal(shown_pixels(page), sample.pixels)


def test_a_file_is_shown_as_the_network_sees_it(open_page: Opener, tmp_path: Path) -> None:
    page = open_page()
    generator = np.random.default_rng(4)
    for height, width in ((1, 1), (5, 31), (64, 64), (47, 33)):
        picture = Image.fromarray(generator.integers(0, 256, (height, width, 4)).astype(np.uint8))
        picture.save(tmp_path / "file.png")
        page.locator("#file").set_input_files(tmp_path / "file.png")
        expect(page.locator("#clean .own")).to_contain_text(f"Your picture has {height}×{width} pixels")
        assert np.array_equal(shown_pixels(page), FRAMING.frame(picture.convert("RGB")))


def test_a_chosen_file_is_proven_in_its_own_pixels(open_page: Opener, served: Served, tmp_path: Path) -> None:
    page, photo = open_page(), large_photo()
    (tmp_path / "photo.png").write_bytes(file_of(photo))
    page.locator("#file").set_input_files(tmp_path / "photo.png")
    expect(page.locator("#clean .own")).to_contain_text(
        "Your picture has 47×60 pixels; the network sees its middle 47×47 at"
    )
    answer = served.model.defense(photo)
    assert isinstance(answer, Answer) and answer.certified and answer.square_original > 2
    expect(page.locator("#clean-class")).to_have_text(answer.name)
    expect(page.locator("#clean .own")).to_contain_text(
        f"no {answer.square_original}×{answer.square_original} patch anywhere can"
    )
    expect(page.locator(".thumb[aria-pressed=true]")).to_have_count(0)
    assert np.array_equal(shown_pixels(page), FRAMING.frame(Image.fromarray(photo)))


def test_a_proof_for_the_network_alone_is_told_as_such(open_page: Opener, served: Served, tmp_path: Path) -> None:
    page, photo = open_page(), np.ascontiguousarray(photos()[-1][4:9, 4:9])
    (tmp_path / "tiny.png").write_bytes(file_of(photo))
    page.locator("#file").set_input_files(tmp_path / "tiny.png")
    answer = served.model.defense(photo)
    assert isinstance(answer, Answer) and answer.certified and not answer.proven
    expect(page.locator("#clean .own")).to_contain_text("In its own pixels, nothing is proven.")
    expect(page.locator("#clean .tag")).to_have_text("Proven")  # of the picture that is shown, at the network's size


def test_a_dropped_file_is_taken(open_page: Opener, served: Served) -> None:
    page, photo = open_page(), large_photo()
    page.evaluate(DROPPED, in_base64(file_of(photo)))
    expect(page.locator("#clean .own")).to_contain_text("Your picture has 47×60 pixels")
    expect(page.locator("#drop")).to_be_hidden()
    expect(page.locator("#picture")).to_have_attribute("aria-label", "Your picture")


def test_a_file_that_is_not_a_picture_is_reported(plain_page: "Page", tmp_path: Path) -> None:
    page = plain_page
    before = page.locator("#clean-class").text_content()
    (tmp_path / "words.png").write_bytes(b"not a picture")
    page.locator("#file").set_input_files(tmp_path / "words.png")
    expect(page.get_by_role("alert")).to_contain_text("This is not a picture in a known format.")
    assert page.locator("#clean-class").text_content() == before
    page.locator(".thumb").nth(1).click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_transparency_is_dropped(open_page: Opener, tmp_path: Path) -> None:
    page = open_page()
    Image.new("RGBA", (12, 12), (10, 200, 30, 0)).save(tmp_path / "clear.png")
    page.locator("#file").set_input_files(tmp_path / "clear.png")
    expect(page.locator("#picture")).to_have_attribute("aria-label", "Your picture")
    assert (shown_pixels(page) == (10, 200, 30)).all()
