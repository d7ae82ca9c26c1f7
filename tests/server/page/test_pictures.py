"""The visitor's own pictures are shown, certified and patched as the network sees them."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bagcert.server.model import to_original
from bagcert.server.resizing import Pixels, resize
from tests.server.conftest import file_of, photos
from tests.server.page.conftest import Opener, Served
from tests.server.page.looking import shown_pixels

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect
RESIZED = """async ([bytes, width, height]) => {
  const [{ decode }, { resize }] = await Promise.all([import('/pixels.js'), import('/resize.js')]);
  const blob = new Blob([Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0))]);
  return [...resize(await decode(blob, 1e9), width, height).data];
}"""
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


def test_the_page_resizes_as_the_server_does(open_page: Opener) -> None:
    page = open_page()
    generator = np.random.default_rng(4)
    for height, width, to_height, to_width in ((1, 1, 12, 12), (5, 31, 12, 12), (64, 64, 32, 32), (47, 33, 32, 32)):
        pixels = generator.integers(0, 256, (height, width, 3)).astype(np.uint8)
        found = page.evaluate(RESIZED, [in_base64(file_of(pixels)), to_width, to_height])
        levels = np.array(found, np.uint8).reshape(to_height, to_width, 4)
        assert np.array_equal(levels[:, :, :3], resize(pixels, (to_height, to_width)))


def test_a_chosen_file_is_proven_in_its_own_pixels(open_page: Opener, served: Served, tmp_path: Path) -> None:
    page, photo = open_page(), large_photo()
    (tmp_path / "photo.png").write_bytes(file_of(photo))
    page.locator("#file").set_input_files(tmp_path / "photo.png")
    expect(page.locator("#clean .own")).to_contain_text("Your picture has 60×47 pixels")
    (found,) = served.model.answer([resize(photo, (12, 12))])
    seen = to_original(served.model, found, (47, 60))
    assert found.certified and seen.square > 2
    expect(page.locator("#clean-class")).to_have_text(served.name(found))
    expect(page.locator("#clean .own")).to_contain_text(f"no {seen.square}×{seen.square} patch anywhere can change")
    expect(page.locator(".thumb[aria-pressed=true]")).to_have_count(0)
    assert np.array_equal(shown_pixels(page), resize(photo, (12, 12)))


def test_a_dropped_file_is_taken(open_page: Opener, served: Served) -> None:
    page, photo = open_page(), large_photo()
    page.evaluate(DROPPED, in_base64(file_of(photo)))
    expect(page.locator("#clean .own")).to_contain_text("Your picture has 60×47 pixels")
    expect(page.locator("#drop")).to_be_hidden()
    expect(page.locator("#picture")).to_have_attribute("aria-label", "Your picture")


def test_a_file_that_is_not_a_picture_is_reported(open_page: Opener, tmp_path: Path) -> None:
    page = open_page()
    before = page.locator("#clean-class").text_content()
    (tmp_path / "words.png").write_bytes(b"not a picture")
    page.locator("#file").set_input_files(tmp_path / "words.png")
    expect(page.get_by_role("alert")).to_contain_text("The browser cannot read this file as a picture.")
    assert page.locator("#clean-class").text_content() == before
    page.locator(".thumb").nth(1).click()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_what_the_server_reads_differently_is_not_proven_in_its_own_pixels(open_page: Opener, tmp_path: Path) -> None:
    """The page shows transparent parts on white, the server drops transparency: its proof is about another picture."""
    page = open_page()
    opaque = Image.fromarray(large_photo())
    for name, level in (("seen", 255), ("clear", 0)):
        picture = opaque.copy()
        picture.putalpha(Image.new("L", opaque.size, level))
        picture.save(tmp_path / f"{name}.png")
        page.locator("#file").set_input_files(tmp_path / f"{name}.png")
        own = page.locator("#clean .own")
        expect(own).to_contain_text("Your picture has 60×47 pixels")
        expect(page.locator("#clean-class")).not_to_be_empty()
        if level:
            expect(own).to_contain_text("patch anywhere can change")
        else:
            expect(own).not_to_contain_text("patch anywhere can change")


def test_transparent_parts_are_shown_on_white(open_page: Opener, tmp_path: Path) -> None:
    page, buffer = open_page(), io.BytesIO()
    Image.new("RGBA", (12, 12), (0, 0, 0, 0)).save(buffer, "PNG")
    (tmp_path / "clear.png").write_bytes(buffer.getvalue())
    page.locator("#file").set_input_files(tmp_path / "clear.png")
    expect(page.locator("#picture")).to_have_attribute("aria-label", "Your picture")
    assert (shown_pixels(page) == 255).all()
