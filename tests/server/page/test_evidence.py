"""The page shows what the model says about exactly the pixels on the screen: every fill, score maps and bars."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from bagcert.defense import Defense
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.server.samples import drawn_samples
from bagcert.threats.threat import Placement
from tests.server.conftest import answers_of, file_of, small_model
from tests.server.page.conftest import Opener, Served, opening, serving
from tests.server.page.looking import place_of, shown, shown_pixels, wait_for_patched

if TYPE_CHECKING:
    from playwright.sync_api import Browser

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


def test_every_fill_is_answered_as_painted(open_page: Opener, served: Served) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    clean = served.samples[0].pixels
    for fill in ("Color", "Noise", "Another class", "Attack"):
        page.get_by_role("radio", name=fill, exact=True).check()
        wait_for_patched(page)
        place, pixels = place_of(page), shown_pixels(page)
        inside = np.zeros((12, 12, 1), bool)
        inside[place.row : place.row + place.height, place.column : place.column + place.width] = True
        assert np.array_equal(np.where(inside, clean, pixels), clean)  # nothing beside the patch is touched
        (found,) = answers_of(served.model, [pixels])
        stayed = found.predicted == served.found[0].predicted
        expect(page.locator("#patched-class")).to_have_text(f"{'Still' if stayed else 'Now'} {served.name(found)}")


def test_another_class_is_the_middle_of_its_sample(open_page: Opener, served: Served) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    page.get_by_role("radio", name="Another class").check()
    wait_for_patched(page)
    names = [sample.name for sample in served.samples]
    other = next(index for index, name in enumerate(names) if name != served.names[0])
    expect(page.get_by_label("From the middle of")).to_have_value(names[other])
    assert place_of(page) == Placement(5, 5, 2, 2)
    assert np.array_equal(shown_pixels(page)[5:7, 5:7], served.samples[other].pixels[5:7, 5:7])


def test_new_noise_is_different(open_page: Opener) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    page.get_by_role("radio", name="Noise").check()
    before = shown_pixels(page)[5:7, 5:7]
    page.keyboard.press("Tab")
    page.locator("#patch").press("ArrowLeft")
    assert np.array_equal(shown_pixels(page)[5:7, 4:6], before)  # it moves as it is
    page.get_by_role("button", name="New noise").click()
    assert not np.array_equal(shown_pixels(page)[5:7, 4:6], before)


def test_evidence_has_the_signs_of_the_scores(open_page: Opener, served: Served) -> None:
    page = open_page()
    scores = served.found[0].scores
    for index, name in enumerate(served.model.defense.classes):
        page.locator("#votes button").nth(index).click()
        expect(page.locator("#evidence-class")).to_have_text(name)
        layer = shown(page, "evidence").astype(int)
        clear = layer[:, :, 3] >= 32  # faint colors are rounded
        green, orange = layer[:, :, 1] > layer[:, :, 0], layer[:, :, 0] > layer[:, :, 1]
        assert (
            clear.any() and (green == (scores[index] > 0))[clear].all() and (orange == (scores[index] < 0))[clear].all()
        )
        mean = scores[index].mean() / served.model.defense.scorer.step.unit
        value = page.locator("#votes .value").nth(index).text_content()
        assert value is not None and abs(float(value.replace("−", "-")) - mean) < 0.051
    page.locator("#votes button").last.click()  # again: back to the picture
    expect(page.locator("#evidence")).to_be_hidden()
    expect(page.get_by_role("radio", name="Picture")).to_be_checked()


def test_a_grey_model_is_shown_grey(browser: "Browser", tmp_path: Path) -> None:
    config = ResidualConfig(classes=3, channels=1, width=4, kernels=(3,), paths=1, shake=False)
    model = small_model(Defense.build(ResidualScorer(config, (8, 8)).eval(), "every-region", "2x2", ("a", "b", "c")))
    color = np.random.default_rng(2).integers(0, 256, (8, 8, 3)).astype(np.uint8)
    (tmp_path / "color.png").write_bytes(file_of(color))
    with serving(model, drawn_samples((8, 8), 1)) as served, opening(browser, served.url) as opener:
        page = opener()
        page.locator("#file").set_input_files(tmp_path / "color.png")
        page.get_by_role("button", name="Put a patch on it").click()
        wait_for_patched(page)
        color[3:5, 3:5] = (255, 212, 0)
        grey = np.asarray(Image.fromarray(color).convert("L"))
        assert np.array_equal(shown_pixels(page), np.repeat(grey[:, :, None], 3, axis=2))
        expect(page.locator("#patched-class")).to_contain_text(served.name(answers_of(model, [grey[:, :, None]])[0]))


def test_of_many_classes_the_first_are_listed(browser: "Browser") -> None:
    config = ResidualConfig(classes=30, width=4, kernels=(3,), paths=1, shake=False)
    names = tuple(f"class {number}" for number in range(30))
    model = small_model(Defense.build(ResidualScorer(config, (8, 8)).eval(), "every-region", "2x2", names))
    with serving(model, drawn_samples((8, 8), 3)) as served, opening(browser, served.url) as opener:
        page = opener()
        votes = served.found[0].scores.sum(axis=(1, 2))
        first = sorted(np.argsort(-votes, kind="stable")[:12].tolist())
        assert page.locator("#votes li:visible .name").all_text_contents() == [names[index] for index in first]


def test_sizes_by_sliders(open_page: Opener) -> None:
    page = open_page()
    page.get_by_role("button", name="Put a patch on it").click()
    page.get_by_label("Size").fill("4")
    assert place_of(page) == Placement(4, 4, 4, 4)
    expect(page.locator("#cover")).to_have_text("4×4: larger than 2×2, so no proof covers it.")
    page.get_by_label("Keep it square").uncheck()
    page.get_by_label("Width").fill("1")
    assert place_of(page) == Placement(4, 6, 4, 1)
    page.get_by_label("Keep it square").check()
    assert place_of(page)[2:] == (4, 4)
    page.get_by_role("radio", name="Attack").check()  # the server's masks are made for 2x2
    wait_for_patched(page)
    assert place_of(page)[2:] == (2, 2)
    page.get_by_role("button", name="Move to the weakest spot").click()
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("#patched")).to_be_hidden()
