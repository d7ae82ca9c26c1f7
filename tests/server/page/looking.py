"""What the page shows: the drawn pixels, and where the patch is."""

from typing import TYPE_CHECKING

import numpy as np

from bagcert.pictures import Pixels
from bagcert.threats.threat import Placement

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOWN = """() => {
  const shown = document.getElementById('ID');
  const copy = Object.assign(document.createElement('canvas'), { width: shown.width, height: shown.height });
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(shown, 0, 0);
  return [...context.getImageData(0, 0, shown.width, shown.height).data];
}"""


def shown(page: "Page", name: str = "picture") -> Pixels:
    """The drawn red, green, blue and opacity of each pixel."""
    levels = np.array(page.evaluate(SHOWN.replace("ID", name)), np.uint8)
    side = round((len(levels) / 4) ** 0.5)
    return levels.reshape(side, side, 4)


def shown_pixels(page: "Page") -> Pixels:
    """The picture, which is opaque."""
    pixels = shown(page)
    assert (pixels[:, :, 3] == 255).all()
    return np.ascontiguousarray(pixels[:, :, :3])


def wait_for_patched(page: "Page") -> None:
    """Wait for the answer to what is shown."""
    page.locator("#patched[aria-busy=false]").wait_for()


def place_of(page: "Page") -> Placement:
    """Where the patch is drawn, in pixels of the network's image."""
    box, frame = page.locator("#patch").bounding_box(), page.locator("#frame").bounding_box()
    size = page.evaluate("() => { const p = document.getElementById('picture'); return [p.height, p.width]; }")
    assert box is not None and frame is not None
    scale = np.array([frame["height"] / size[0], frame["width"] / size[1]])
    corner = np.array([box["y"] - frame["y"], box["x"] - frame["x"]]) / scale
    extent = np.array([box["height"], box["width"]]) / scale
    numbers = np.concatenate([corner, extent])
    assert np.abs(numbers - numbers.round()).max() < 0.05, "the patch lies on whole pixels"
    return Placement(*numbers.round().astype(int).tolist())
