"""Framing: what is kept of a picture, and what a patch on it can touch, tried at every placement and pixel."""

from itertools import chain

import numpy as np
import pytest
from PIL import Image

from bagcert.config import read_config, write_config
from bagcert.errors import UsageError
from bagcert.pictures import Framing, OwnPixels, Pixels
from bagcert.pictures.own_pixels import Axis, longest
from bagcert.threats.threat import Placement, Size

SIZES: list[tuple[Size, Size]] = [
    ((23, 23), (8, 8)),
    ((13, 30), (12, 12)),
    ((12, 7), (12, 12)),
    ((16, 24), (8, 8)),
    ((5, 30), (9, 11)),
    ((1, 17), (12, 12)),
    ((12, 12), (12, 12)),
]
KINDS = [(fit, interpolation) for fit in ("crop", "squash") for interpolation in ("bilinear", "box")]


def framing_of(size: Size, fit: str, interpolation: str, margin: int = 0) -> Framing:
    return Framing(size, min(size) + margin, channels=1, fit=fit, interpolation=interpolation)


def frame(framing: Framing, pixels: Pixels) -> Pixels:
    return framing.frame(Image.fromarray(pixels))[:, :, 0]


def span(changed: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> tuple[int, int]:
    """The first line that changed, and how many lines there are to the last."""
    lines = np.flatnonzero(changed)
    return (int(lines[0]), int(lines[-1] - lines[0]) + 1) if len(lines) else (0, 0)


@pytest.mark.parametrize(("fit", "interpolation"), KINDS)
@pytest.mark.parametrize(("original", "size"), SIZES)
def test_no_patch_of_the_picture_touches_more_than_the_proven_patch(
    original: Size, size: Size, fit: str, interpolation: str
) -> None:
    """A white patch on black and random pixels on noise, at every placement: what changes fits into the patch."""
    framing, random = framing_of(size, fit, interpolation, margin=size[0] % 5), np.random.default_rng(5)
    own = OwnPixels(framing, original)
    noise = random.integers(256, size=original, dtype=np.uint8)
    for proven in [(1, 1), (2, 2), (5, 5), (3, 7)]:
        found = own.patch(proven)
        for clean in (np.zeros(original, np.uint8), noise) if found else ():
            assert found is not None
            before, (height, width) = frame(framing, clean), found
            for row in range(original[0] - height + 1):
                for column in range(original[1] - width + 1):
                    attacked = clean.copy()
                    painted = 255 if clean is not noise else random.integers(256, size=found, dtype=np.uint8)
                    attacked[row : row + height, column : column + width] = painted
                    changed = frame(framing, attacked) != before
                    assert span(changed.any(axis=1))[1] <= proven[0] and span(changed.any(axis=0))[1] <= proven[1]


@pytest.mark.parametrize("interpolation", ["bilinear", "box"])
@pytest.mark.parametrize("inputs", [1, 5, 11, 12, 13, 24, 31, 36, 50, 97, 120])
def test_one_more_line_touches_too_much(inputs: int, interpolation: str) -> None:
    """Along one axis: no run reaches further than claimed, and the claim is off by one output at most, at ties."""
    framing = framing_of((12, 1), "squash", interpolation)
    (axis, _), slack = OwnPixels(framing, (inputs, 1))._axes(), 0 if interpolation == "bilinear" else 1
    for length in range(1, inputs + 1):
        most = 0
        for start in range(inputs - length + 1):
            attacked = np.zeros((inputs, 1), np.uint8)
            attacked[start : start + length] = 255
            most = max(most, span(frame(framing, attacked)[:, 0] != 0)[1])
        assert most <= axis.reach(length) <= most + 2 * slack + (2 if length == 1 else 1)
    for allowed in (1, 2, 5, 11):
        fits = longest(axis, allowed)
        assert fits is not None
        assert fits == 0 or axis.reach(fits) <= allowed
        assert fits == inputs or axis.reach(fits + 1) > allowed
    assert longest(axis, 12) is None


@pytest.mark.parametrize(("fit", "interpolation"), KINDS)
@pytest.mark.parametrize(("original", "size"), SIZES)
def test_the_way_back_names_all_pixels_that_enter(original: Size, size: Size, fit: str, interpolation: str) -> None:
    framing = framing_of(size, fit, interpolation)
    own, black = OwnPixels(framing, original), np.zeros(original, np.uint8)
    for placement in [Placement(0, 0, 3, 2), Placement(4, 5, 3, 2), Placement(size[0] - 1, size[1] - 1, 1, 1)]:
        row, column, height, width = own.source(placement)
        outside = np.full(original, 255, np.uint8)
        outside[row : row + height, column : column + width] = 0
        top, left, tall, wide = placement
        inside = (slice(top, top + tall), slice(left, left + wide))
        assert not frame(framing, outside)[inside].any()  # nothing else enters
        assert row >= 0 and row + height <= original[0] and column >= 0 and column + width <= original[1]
        assert (frame(framing, ~outside) != frame(framing, black))[inside].any()


def test_the_middle_is_kept_in_the_proportions_of_the_network() -> None:
    assert Framing((32, 32), 32).part((100, 37)) == (31, 0, 37, 37)
    assert Framing((224, 224), 256).part((512, 1024)) == (32, 288, 448, 448)
    assert Framing((10, 20), 10).part((100, 100)) == (25, 0, 50, 100)
    assert Framing((10, 20), 10, fit="squash").part((100, 100)) == (0, 0, 100, 100)
    assert Framing((8, 8), 0).part((11, 9)) == (1, 0, 8, 8)
    assert Framing((32, 32), 32).part((1, 5000)) == (0, 2499, 1, 1)


def test_a_picture_of_the_networks_size_stays_as_it_is() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(12, 9, 3), dtype=np.uint8)
    for fit, interpolation in KINDS:
        framing = Framing((12, 9), 20, fit=fit, interpolation=interpolation)
        assert np.array_equal(framing.frame(Image.fromarray(pixels)), pixels)
        assert OwnPixels(framing, (12, 9)).patch((5, 3)) == (5, 3)
        assert OwnPixels(framing, (12, 9)).source(Placement(2, 3, 4, 5)) == (2, 3, 4, 5)


def test_a_thin_picture_takes_little_memory() -> None:
    """Scaled before it is cut, it would have 2**32 pixels."""
    assert Framing().frame(Image.new("RGB", (1, 2**16), "red")).shape == (224, 224, 3)


def test_larger_patches_are_proven_of_larger_pictures() -> None:
    box, bilinear = Framing((32, 32), 32), Framing((32, 32), 32, interpolation="bilinear")
    assert [OwnPixels(bilinear, (side, side)).patch((5, 5)) for side in (32, 64, 320)] == [(5, 5), (7, 7), (31, 31)]
    assert [OwnPixels(box, (side, side)).patch((5, 5)) for side in (32, 64, 320)] == [(5, 5), (9, 9), (41, 41)]
    assert OwnPixels(bilinear, (7, 7)).patch((5, 5)) is None  # a single pixel enters more than five rows
    assert OwnPixels(bilinear, (64, 64)).square([(1, 24), (5, 5)]) == 7
    assert OwnPixels(bilinear, (64, 64)).square([]) == 0 == OwnPixels(bilinear, (64, 64)).square([(0, 0)])
    assert OwnPixels(bilinear, (100, 40)).patch((32, 32)) == (100, 40)


def test_a_framing_comes_back_from_a_card() -> None:
    framing = Framing((32, 24), 40, 1, "squash", "bilinear")
    assert (
        Framing.on_card(write_config(framing), (32, 24), 1)
        == framing
        == read_config(Framing, write_config(framing), "")
    )
    assert (
        Framing.on_card(None, (32, 32), 3) == Framing((32, 32), 32)
        and Framing.on_card(None, (224, 224), 3) == Framing()
    )
    with pytest.raises(UsageError, match="card's framing makes 1x32x24, but the network takes 3x32x32"):
        Framing.on_card(write_config(framing), (32, 32), 3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fit": "squish"}, "Unknown fit 'squish'. Did you mean 'squash'"),
        ({"interpolation": "cubic"}, "Unknown interpolation 'cubic'"),
        ({"channels": 4}, r"1 channel \(gray\) or 3 \(RGB\), but this network takes 4"),
        ({"resize": "32"}, "framing.resize must be a whole number"),
        ({"size": [32]}, "framing.size must have 2 numbers"),
    ],
)
def test_a_wrong_framing_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_config(Framing, {**write_config(Framing()), **changes}, "framing")


def test_reach_is_what_the_definition_says() -> None:
    """Against a plain double loop over the condition of the docstring."""
    for kept, outputs, support in [(50, 12, 100), (12, 50, 100), (31, 12, 32), (7, 7, 14)]:
        axis = Axis(kept, outputs, support)
        enters = [
            [o for o in range(outputs) if abs((2 * i + 1) * outputs - (2 * o + 1) * kept) < support]
            for i in range(kept)
        ]
        for length in range(1, kept + 1):
            runs = [list(chain(*enters[i : i + length])) for i in range(kept - length + 1)]
            assert axis.reach(length) == max(max(run) - min(run) + 1 for run in runs if run)
