"""What a drawing shows: each place in one color, on the picture and on both maps."""

import numpy as np
import torch
from matplotlib.colors import to_hex

from bagcert.pictures.panels import COLORS, draw_panels
from bagcert.threats import RegionThreat
from tests.onnx.conftest import pictures, small_defense


def test_a_place_has_one_color_in_every_panel() -> None:
    maps = [("class", np.zeros((4, 4))), ("rival", np.ones((4, 4)))]
    places = [(0, 0, 2, 2), (5, 5, 2, 2)]
    figure = draw_panels(np.zeros((8, 8, 3), dtype=np.uint8), "picture", maps, places, [(0, 0, 1, 1), (2, 2, 1, 1)])
    for ax in figure.axes:
        assert [to_hex(patch.get_edgecolor()) for patch in ax.patches] == list(COLORS)
    assert len(figure.axes) == 3 and len(set(COLORS)) == 2


def test_a_box_around_a_set_of_pixels_is_called_one() -> None:
    defense, corners = small_defense("logits", "every-region"), torch.zeros(1, 12, 12, dtype=torch.bool)
    corners[:, 0, 0] = corners[:, 11, 11] = True
    titles = [
        defense.against(threat, "every-region").show(pictures()[0]).axes[0].get_title()
        for threat in (RegionThreat(corners), "2x2")
    ]
    assert titles == ["around the weakest place", "weakest place"]
