import pytest
import torch
from torch import Generator, Tensor

from bagcert.data.augment import Augmentation, crop, flip
from bagcert.errors import UsageError

BATCH, CHANNELS, HEIGHT, WIDTH = 7, 3, 6, 9  # not square: swapped axes would show


def some_images(dtype: torch.dtype = torch.uint8) -> Tensor:
    return torch.randint(1, 256, (BATCH, CHANNELS, HEIGHT, WIDTH), generator=Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("padding", [1, 4])
def test_crop_equals_a_loop_over_pixels(dtype: torch.dtype, padding: int) -> None:
    images = some_images(dtype)
    top, left = torch.randint(2 * padding + 1, (2, BATCH), generator=Generator().manual_seed(1))
    slow = torch.zeros_like(images)
    for number in range(BATCH):
        for row in range(HEIGHT):
            for column in range(WIDTH):
                source = (row + int(top[number]) - padding, column + int(left[number]) - padding)
                if 0 <= source[0] < HEIGHT and 0 <= source[1] < WIDTH:
                    slow[number, :, row, column] = images[number, :, source[0], source[1]]
    assert torch.equal(crop(images, top, left, padding), slow)


def test_flip_mirrors_only_the_chosen() -> None:
    images, flipped = some_images(), torch.arange(BATCH) % 3 == 0
    result = flip(images, flipped)
    for number in range(BATCH):
        rows = images[number].tolist()
        mirrored = [[row[::-1] for row in plane] for plane in rows]
        assert result[number].tolist() == (mirrored if number % 3 == 0 else rows)


def test_nothing_asked_changes_nothing() -> None:
    images = some_images()
    assert torch.equal(Augmentation(flip=False, crop_padding=0)(images, Generator()), images)


def test_call_takes_both_steps_in_order() -> None:
    images, augment = some_images(), Augmentation(flip=True, crop_padding=2)
    draws = augment.draw(BATCH, Generator().manual_seed(5))
    cropped = crop(images, draws.offsets[:, 0], draws.offsets[:, 1], 2)
    assert torch.equal(augment(images, Generator().manual_seed(5)), flip(cropped, draws.flipped))


def test_caller_images_stay_untouched() -> None:
    images = some_images()
    Augmentation(flip=True, crop_padding=2)(images, Generator().manual_seed(0))
    assert torch.equal(images, some_images())


def test_draws_cover_every_offset_and_both_sides() -> None:
    draws = Augmentation(crop_padding=4).draw(20_000, Generator().manual_seed(0))
    assert abs(draws.flipped.float().mean().item() - 0.5) < 0.02  # 5.6 standard deviations
    for column in (0, 1):
        counts = draws.offsets[:, column].bincount()
        assert len(counts) == 9
        assert (counts / 20_000 - 1 / 9).abs().max() < 0.015


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="The crop padding must be 0 or more pixels, but is -1"):
        Augmentation(crop_padding=-1)


def test_a_step_draws_the_same_with_or_without_the_other() -> None:
    both, no_flip, no_crop = (
        augment.draw(BATCH, Generator().manual_seed(3))
        for augment in (Augmentation(True, 4), Augmentation(False, 4), Augmentation(True, 0))
    )
    assert torch.equal(both.offsets, no_flip.offsets)
    assert torch.equal(both.flipped, no_crop.flipped)
