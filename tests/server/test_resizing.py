"""Resizing: the exact average, and what a patch on the original can touch, tried at every placement."""

from fractions import Fraction

import numpy as np
import pytest

from bagcert.server.resizing import (
    Pixels,
    longest,
    patch_in_original,
    reach,
    resize,
    source_range,
    square_in_original,
    weights,
)

SIZES = [((32, 32), (12, 12)), ((13, 40), (12, 12)), ((12, 7), (12, 12)), ((30, 25), (8, 12)), ((5, 50), (9, 11))]


def noise(*shape: int) -> Pixels:
    return np.random.default_rng(5).integers(0, 256, shape, dtype=np.uint8)


def average(pixels: Pixels, size: tuple[int, int], row: int, column: int) -> int:
    """One new pixel in fractions: the mean over its area of the picture, rounded half up."""
    total, area = Fraction(0), Fraction(0)
    for i in range(pixels.shape[0]):
        high = min(Fraction(row + 1) * pixels.shape[0] / size[0], i + 1) - max(
            Fraction(row) * pixels.shape[0] / size[0], i
        )
        for j in range(pixels.shape[1]):
            wide = min(Fraction(column + 1) * pixels.shape[1] / size[1], j + 1) - max(
                Fraction(column) * pixels.shape[1] / size[1], j
            )
            if high > 0 and wide > 0:
                total, area = total + high * wide * int(pixels[i, j, 0]), area + high * wide
    return int(total / area + Fraction(1, 2))


@pytest.mark.parametrize(("original", "network"), SIZES)
def test_every_new_pixel_is_the_average_over_its_area(original: tuple[int, int], network: tuple[int, int]) -> None:
    pixels = noise(*original, 1)
    found = resize(pixels, network)
    for row in range(network[0]):
        for column in range(network[1]):
            assert found[row, column, 0] == average(pixels, network, row, column)


def test_a_picture_of_the_right_size_stays_as_it_is() -> None:
    pixels = noise(12, 9, 3)
    assert np.array_equal(resize(pixels, (12, 9)), pixels)
    assert longest(12, 12, 5) == 5 and patch_in_original((12, 9), (12, 9), (5, 3)) == (5, 3)


def test_channels_are_resized_alike() -> None:
    pixels = noise(30, 25, 3)
    for channel in range(3):
        part = pixels[:, :, channel : channel + 1]
        assert np.array_equal(resize(pixels, (8, 12))[:, :, channel : channel + 1], resize(part, (8, 12)))


def touched(changed: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> int:
    """From the first to the last line that changed."""
    lines = np.flatnonzero(changed)
    return int(lines[-1] - lines[0]) + 1 if len(lines) else 0


@pytest.mark.parametrize(("original", "network"), SIZES)
@pytest.mark.parametrize("patch", [(1, 1), (2, 2), (5, 5), (3, 7)])
def test_no_patch_of_the_original_touches_more_than_the_patch_of_the_network(
    original: tuple[int, int], network: tuple[int, int], patch: tuple[int, int]
) -> None:
    """A white patch on black, at every placement: what changes fits into the network's patch."""
    height, width = patch_in_original(original, network, patch)
    black = np.zeros((*original, 1), np.uint8)
    before = resize(black, network)
    for row in range(original[0] - height + 1 if height else 0):
        for column in range(original[1] - width + 1):
            attacked = black.copy()
            attacked[row : row + height, column : column + width] = 255
            changed = (resize(attacked, network) != before)[:, :, 0]
            assert touched(changed.any(axis=1)) <= patch[0] and touched(changed.any(axis=0)) <= patch[1]


@pytest.mark.parametrize("inputs", [5, 11, 12, 13, 24, 31, 50])
@pytest.mark.parametrize("allowed", [1, 2, 5, 12])
def test_one_more_line_touches_too_much(inputs: int, allowed: int) -> None:
    """Along one axis every change is visible: exactly the claimed length fits, and no more."""
    outputs = 12
    black = np.zeros((inputs, 1, 1), np.uint8)

    def most(length: int) -> int:
        found = []
        for start in range(inputs - length + 1):
            attacked = black.copy()
            attacked[start : start + length] = 255
            found.append(touched((resize(attacked, (outputs, 1)) != 0)[:, 0, 0]))
        return max(found)

    claimed = longest(inputs, outputs, allowed)
    assert claimed == 0 or most(claimed) <= allowed
    assert claimed == inputs or most(claimed + 1) > allowed
    for length in range(1, inputs + 1):
        assert reach(inputs, outputs, length) == most(length)


def test_squares_take_the_best_of_the_proven_patches() -> None:
    assert square_in_original((64, 64), (32, 32), ((5, 5),)) == 9  # ten pixels may straddle a sixth
    assert square_in_original((64, 64), (32, 32), ((1, 24), (3, 3))) == 5
    assert square_in_original((100, 100), (32, 32), ((1, 24),)) == 0  # a single pixel may straddle two rows
    assert square_in_original((64, 64), (32, 32), ()) == 0 == square_in_original((64, 64), (32, 32), ((0, 0),))


def test_a_patch_larger_than_the_picture_is_the_picture() -> None:
    assert patch_in_original((3, 40), (12, 12), (12, 12)) == (3, 40)


@pytest.mark.parametrize(("inputs", "outputs"), [(40, 12), (12, 12), (5, 12), (31, 12)])
def test_the_way_back_names_the_pixels_that_enter(inputs: int, outputs: int) -> None:
    for start in range(outputs - 2):
        used = np.flatnonzero(weights(inputs, outputs)[start : start + 3].any(axis=0))
        assert source_range(start, 3, inputs, outputs) == (used[0], len(used))
