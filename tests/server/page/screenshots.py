"""Make the screenshots in docs/page, of the shipped model on CIFAR-10: python -m tests.server.page.screenshots."""

import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from bagcert.cli.serve import sample_pictures
from bagcert.defense import load
from tests.server.conftest import small_model
from tests.server.page.conftest import Served, opening, sandbox, serving
from tests.server.page.looking import wait_for_patched

MOST_BYTES = 150_000
FOLDER = Path(__file__).parents[3] / "docs" / "page"
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 940}}
PHONE: dict[str, Any] = {"viewport": {"width": 360, "height": 760}, "device_scale_factor": 2, "has_touch": True}


def main() -> None:
    model = small_model(load("cifar10-small"))
    model.name = "cifar10-small"
    chromium = shutil.which("chromium")
    with (
        serving(model, sample_pictures("cifar10", model, None)) as served,
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium, args=sandbox()) as browser,
    ):
        take_all(browser, served)


def take_all(browser: Browser, served: Served) -> None:
    """Open a new page for each view."""
    proven, broken = served.first(certified=True), served.breakable()
    with opening(browser, served.url) as opener:
        keep(opener(**DESK), "light")
        dark = opener(color_scheme="dark", **DESK)
        dark.locator(".thumb").nth(proven).click()
        dark.get_by_role("radio", name="Evidence").check()
        keep(dark, "dark")
        for name, sample in (("holds", proven), ("breaks", broken)):
            page = opener(**DESK)
            attack(page, sample)
            keep(page, name)
        phone = opener(**PHONE)
        attack(phone, broken)
        keep(phone, "phone")


def attack(page: Page, sample: int) -> None:
    page.locator(".thumb").nth(sample).click()
    page.get_by_role("button", name="Attack it").click()
    wait_for_patched(page)
    page.mouse.move(0, 0)


def keep(page: Page, name: str) -> None:
    """Save with as many bits per color as fit into a small file."""
    FOLDER.mkdir(exist_ok=True)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    for bits in range(8, 3, -1):
        buffer, most = io.BytesIO(), 2**bits - 1
        picture.point([round(round(level * most / 255) * 255 / most) for level in range(256)] * 3).save(
            buffer, "PNG", optimize=True
        )
        if len(buffer.getvalue()) <= MOST_BYTES:
            break
    (FOLDER / f"{name}.png").write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
