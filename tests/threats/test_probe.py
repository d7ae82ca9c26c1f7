"""The spot check of a footprint: which pixels it tries, and what it says when NaN escapes."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.threats import Footprint, Layer
from bagcert.threats.probe import (
    bits,
    check_batch,
    check_footprint,
    check_places,
    copied,
    own_scores,
    reached_outputs,
)

TRIED: list[list[int]] = []  # the module is copied, so that it cannot hold this itself


class Recorder(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        TRIED.append([len(images), *images.flatten().isnan().nonzero().flatten().tolist()])
        return images


def test_corners_come_first_then_pixels_all_over_the_image() -> None:
    TRIED.clear()
    check_footprint(Recorder(), Footprint.identity((4, 9)), channels=1)
    spread = [2, 4, 7, 9, 11, 14, 16, 18, 21, 23, 25, 28, 30, 32]
    with_nan = [call for call in TRIED if len(call) > 1]
    assert [[1, place] for place in (0, 8, 27, 35, *spread)] == with_nan
    assert len(TRIED) == 3 + 2 * len(with_nan)  # one image twice, another between; then NaN and a number at each pixel


class Leak(nn.Module):
    """The image itself, but two pixels also reach one more output."""

    def forward(self, images: Tensor) -> Tensor:
        scores = images.clone()
        scores[:, :, 2, 1] += images[:, :, 3, 8]
        scores[:, :, 3, 2] += images[:, :, 0, 8]
        return scores


def test_a_leak_is_told_with_pixel_and_output() -> None:
    with pytest.raises(UsageError) as error:
        check_footprint(Leak(), Footprint.identity((4, 9)), channels=1)
    assert str(error.value) == (
        "Pixel (0, 8) must reach its footprint only, but changes output (3, 2). "
        "Give the true footprint of this network."
    )


def test_a_footprint_may_be_larger_than_what_is_reached() -> None:
    check_footprint(nn.Conv2d(3, 2, 3, padding=1), Footprint.of_layers([Layer(5, padding=2)], (6, 5)), channels=3)
    with pytest.raises(UsageError, match=r"Pixel \(0, 0\) must reach its footprint only, but changes output \("):
        check_footprint(nn.Conv2d(3, 2, 5, padding=2), Footprint.of_layers([Layer(3, padding=1)], (6, 5)), channels=3)


def test_the_probe_leaves_the_network_as_it_was() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 1), nn.Dropout(0.5)).train()
    reached = reached_outputs(network, torch.ones(1, 2, 2) > 0, channels=1)
    assert bool(reached.all()) and not reached.requires_grad
    assert network.training and network[0].weight.dtype == torch.float32


class Memory(nn.Module):
    """Adds the number of images that it has seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def forward(self, images: Tensor) -> Tensor:
        self.seen += len(images)
        return images + self.seen


def test_a_network_that_remembers_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        check_footprint(Memory(), Footprint.identity((4, 9)), channels=1)
    assert str(error.value) == "The network scores the same image differently the second time. Remove noise and memory."


def test_the_check_draws_from_its_own_random_numbers() -> None:
    before = torch.get_rng_state()
    check_footprint(nn.Identity(), Footprint.identity((4, 9)), channels=1)
    assert torch.equal(torch.get_rng_state(), before)


class Noted:
    """Takes the place of traced operations, and keeps the images that it is given."""

    footprint = Footprint.identity((4, 9))

    def __init__(self, scores: Callable[[Tensor], Tensor]) -> None:
        self.scores, self.given = scores, list[Tensor]()

    def __call__(self, network: nn.Module, images: Tensor) -> Tensor:
        self.given.append(images.clone())
        return self.scores(images)


def test_a_batch_has_one_changed_pixel_in_each_image() -> None:
    images = torch.rand(16, 2, 4, 9, generator=torch.Generator().manual_seed(0))
    noted: Any = Noted(torch.clone)
    check_batch(nn.Identity(), noted, images)
    clean, turned, swapped, missing = noted.given
    assert torch.equal(clean, images)
    places = [0, 8, 27, 35, 2, 5, 8, 10, 13, 16, 18, 21, 24, 26, 29, 32]
    for number, place in enumerate(places):
        row, column = divmod(place, 9)
        for changed, value in (
            (turned, 1 - images[number, :, row, column].round()),
            (swapped, images[15 - number, :, row, column]),
            (missing, torch.nan),
        ):
            expected = images[number].clone()
            expected[:, row, column] = value
            assert torch.equal(bits(changed[number]), bits(expected))


def test_a_leak_in_a_batch_is_told_with_pixel_and_output() -> None:
    noted: Any = Noted(Leak())
    with pytest.raises(UsageError, match=r"^Pixel \(0, 8\) must reach its .*, but changes output \(3, 2\)\."):
        check_batch(nn.Identity(), noted, torch.rand(16, 2, 4, 9, generator=torch.Generator().manual_seed(0)))


def neighbors_times_zero(images: Tensor) -> Tensor:
    """As a kernel computes that fills up an odd number of channels by those of the pixel before, times 0."""
    return images + 0 * images.roll(1, dims=3)


def test_a_kernel_that_spreads_infinities_is_refused() -> None:
    noted: Any = Noted(neighbors_times_zero)
    with pytest.raises(UsageError, match=r"^Pixel \(0, 0\) must reach its .*, but changes output \(0, 1\)\."):
        check_batch(nn.Identity(), noted, torch.rand(16, 2, 4, 9, generator=torch.Generator().manual_seed(0)))


def test_a_network_that_knows_the_place_in_a_batch_is_refused() -> None:
    images = torch.rand(16, 2, 4, 9, generator=torch.Generator().manual_seed(0))
    check_places(nn.Identity(), Noted(torch.clone), images)  # type: ignore[arg-type]
    last = torch.zeros(16, 1, 1, 1)
    last[-1] = 1e-6
    with pytest.raises(UsageError) as error:
        check_places(nn.Identity(), Noted(lambda batch: batch + last), images)  # type: ignore[arg-type]
    assert str(error.value) == (
        "A network must give an image the same scores at every place of a batch, but this machine rounds its functions "
        "differently there. Use ReLU, even numbers of features, or a power of 2 of threads."
    )


def test_a_network_that_cannot_be_copied_is_refused() -> None:
    network = nn.Identity()
    network.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(UsageError) as error:
        copied(network)
    assert str(error.value) == (
        "The network cannot be copied (cannot pickle '_thread.lock' object). Remove what it stores between calls."
    )


class Failing(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        raise ValueError("no such\nthing")


class Both(nn.Module):
    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return images, images


def test_networks_that_give_no_scores_are_refused() -> None:
    images = torch.rand(2, 3, 4, 5)
    with pytest.raises(UsageError) as error:
        own_scores(Failing(), images)
    assert str(error.value) == "The network fails on [2, 3, 4, 5] (no such). Check its forward method."
    with pytest.raises(UsageError) as error:
        own_scores(Both(), images)
    assert str(error.value) == "Scores must be one tensor, but are tuple. Return the score map alone."


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_bits_tell_zeros_apart_and_make_nan_equal(kind: torch.dtype) -> None:
    scores = torch.tensor([0.0, -0.0, torch.nan, 1.0], requires_grad=True).to(kind)
    found = bits(scores)
    assert found.shape == (4,) and not found.is_floating_point() and torch.equal(found, bits(scores.clone()))
    assert found[0] != found[1]
