import pytest
import torch
from torch import Generator, Tensor

from bagcert.data.augment import Augmentation, crop, cutout, flip
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


@pytest.mark.parametrize("size", [1, 4, 5])
def test_cutout_equals_a_loop_and_is_clipped(size: int) -> None:
    images = some_images()
    rows, columns = torch.tensor([0, 5, 2, 3, 0, 5, 1]), torch.tensor([0, 8, 4, 0, 8, 3, 7])
    slow = images.clone()
    for number in range(BATCH):
        top, left = int(rows[number]) - size // 2, int(columns[number]) - size // 2
        slow[number, :, max(0, top) : max(0, top + size), max(0, left) : max(0, left + size)] = 0
    assert torch.equal(cutout(images, rows, columns, size), slow)
    assert not torch.equal(slow, images)


def test_nothing_asked_changes_nothing() -> None:
    images = some_images()
    assert torch.equal(Augmentation(flip=False, crop_padding=0, cutout=0)(images, Generator()), images)


def test_call_takes_all_three_steps_in_order() -> None:
    images, augment = some_images(), Augmentation(flip=True, crop_padding=2, cutout=3)
    draws = augment.draw(BATCH, (HEIGHT, WIDTH), Generator().manual_seed(5))
    cropped = crop(images, draws.offsets[:, 0], draws.offsets[:, 1], 2)
    expected = cutout(flip(cropped, draws.flipped), draws.centers[:, 0], draws.centers[:, 1], 3)
    assert torch.equal(augment(images, Generator().manual_seed(5)), expected)


def test_caller_images_stay_untouched() -> None:
    images = some_images()
    Augmentation(flip=True, crop_padding=2, cutout=4)(images, Generator().manual_seed(0))
    assert torch.equal(images, some_images())


def test_draws_cover_every_offset_center_and_both_sides() -> None:
    draws = Augmentation(crop_padding=4).draw(20_000, (HEIGHT, WIDTH), Generator().manual_seed(0))
    assert abs(draws.flipped.float().mean().item() - 0.5) < 0.02  # 5.6 standard deviations
    for column in (0, 1):
        counts = draws.offsets[:, column].bincount()
        assert len(counts) == 9
        assert (counts / 20_000 - 1 / 9).abs().max() < 0.015
    assert len(draws.centers[:, 0].bincount()) == HEIGHT
    assert len(draws.centers[:, 1].bincount()) == WIDTH


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="Crop padding and cutout must be 0 or more pixels, but are 4 and -1"):
        Augmentation(cutout=-1)


def test_a_step_draws_the_same_whichever_others_are_on() -> None:
    every = Augmentation(True, 4, 8).draw(BATCH, (8, 8), Generator().manual_seed(3))
    one = Augmentation(False, 4, 0).draw(BATCH, (8, 8), Generator().manual_seed(3))
    assert torch.equal(every.offsets, one.offsets)
