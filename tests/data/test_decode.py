from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from bagcert.data.stream import decode
from bagcert.errors import UsageError
from bagcert.pictures import Framing

EXIF_ORIENTATION = 0x0112
AS_IS = Framing((6, 6), resize=0)


def save(path: Path, picture: Image.Image, **options: Any) -> Path:
    picture.save(path, **options)
    return path


def grey_ramp() -> Image.Image:
    return Image.fromarray(np.arange(36, dtype=np.uint8).reshape(6, 6) * 7)


def colors() -> Image.Image:
    """Red upper left, green upper right, blue below."""
    pixels = np.zeros((6, 6, 3), np.uint8)
    pixels[:3, :3, 0] = pixels[:3, 3:, 1] = pixels[3:, :, 2] = 255
    return Image.fromarray(pixels)


def planes(picture: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)


def test_rgb_as_it_is(tmp_path: Path) -> None:
    assert torch.equal(decode(save(tmp_path / "a.png", colors()), AS_IS, None), planes(colors()))


def test_grey_is_repeated(tmp_path: Path) -> None:
    images = decode(save(tmp_path / "a.png", grey_ramp()), AS_IS, None)
    assert torch.equal(images, torch.arange(36).reshape(1, 6, 6).byte().expand(3, 6, 6) * 7)


def test_sixteen_bit_grey_keeps_its_shades(tmp_path: Path) -> None:
    deep = Image.fromarray(np.asarray(grey_ramp()).astype(np.uint16) * 257)
    expected = planes(grey_ramp().convert("RGB"))
    assert torch.equal(decode(save(tmp_path / "a.png", deep), AS_IS, None), expected)
    assert torch.equal(decode(save(tmp_path / "a.tif", deep), AS_IS, None), expected)


def test_palette_is_looked_up(tmp_path: Path) -> None:
    picture = colors().quantize(4)
    assert picture.mode == "P"
    assert torch.equal(decode(save(tmp_path / "a.png", picture), AS_IS, None), planes(colors()))
    see_through = save(tmp_path / "b.png", picture, transparency=b"\x00\x80\xff\xff")
    assert torch.equal(decode(see_through, AS_IS, None), planes(colors()))


def test_alpha_is_dropped(tmp_path: Path) -> None:
    picture = colors()
    picture.putalpha(grey_ramp())
    assert torch.equal(decode(save(tmp_path / "a.png", picture), AS_IS, None), planes(colors()))


def test_cmyk_becomes_rgb(tmp_path: Path) -> None:
    plain = Image.new("RGB", (16, 16), (200, 40, 90))
    path = save(tmp_path / "a.jpg", plain.convert("CMYK"), quality=100)
    with Image.open(path) as picture:
        assert picture.mode == "CMYK"
    difference = decode(path, Framing((16, 16), 0), None).int() - planes(plain).int()
    assert difference.abs().max() <= 2  # JPEG


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 3), (8, 1)])  # turns: quarter, counterclockwise
def test_exif_rotation_is_undone(tmp_path: Path, orientation: int, turns: int) -> None:
    exif = Image.Exif()
    exif[EXIF_ORIENTATION] = orientation
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(np.asarray(colors()), -turns)))
    assert torch.equal(decode(save(tmp_path / "a.png", stored, exif=exif), AS_IS, None), planes(colors()))


def halves(height: int, width: int) -> Image.Image:
    """Left half black, right half white."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, width // 2 :] = 255
    return Image.fromarray(pixels)


@pytest.mark.parametrize(("height", "width"), [(100, 300), (300, 100), (64, 64), (33, 47)])
def test_shorter_side_is_scaled_and_the_center_cut(tmp_path: Path, height: int, width: int) -> None:
    images = decode(save(tmp_path / "a.png", halves(height, width)), Framing((32, 32), resize=40), None)
    assert images.shape == (3, 32, 32)
    assert images[:, :, :12].max() <= 8  # the edge stays in the middle
    assert images[:, :, 20:].min() >= 247


def test_every_place_of_the_crop_can_be_reached(tmp_path: Path) -> None:
    pixels = np.arange(8 * 9, dtype=np.uint8).reshape(8, 9)
    path = save(tmp_path / "a.png", Image.fromarray(pixels))
    for top in range(3):
        for left in range(4):
            images = decode(path, AS_IS, ((top + 0.999) / 3, (left + 0.001) / 4))
            assert np.array_equal(images[0].numpy(), pixels[top : top + 6, left : left + 6])


def test_too_small_an_image_is_named(tmp_path: Path) -> None:
    path = save(tmp_path / "small.png", halves(5, 9))
    with pytest.raises(
        UsageError, match=r"small\.png: The picture has 5x9 pixels, fewer than the crop of 6x6\. Set resize, or a"
    ):
        decode(path, AS_IS, None)


@pytest.mark.parametrize("ending", ["png", "jpg", "gif", "bmp", "webp", "tif"])
@pytest.mark.parametrize("keep", [0, 0.1, 0.6])
def test_truncated_images_are_named(tmp_path: Path, ending: str, keep: float) -> None:
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    path = save(tmp_path / f"cut.{ending}", Image.fromarray(noise))
    decode(path, Framing((64, 64), 0), None)
    path.write_bytes(path.read_bytes()[: int(keep * path.stat().st_size)])
    remedy = r"Remove it, or train with --skip-broken\."
    with pytest.raises(UsageError, match=rf"Cannot read the image [^\n]*cut\.{ending}: [^\n]+\. {remedy}") as told:
        decode(path, Framing((64, 64), 0), None)
    assert "\n" not in str(told.value)


def test_an_impossible_framing_is_refused() -> None:
    with pytest.raises(UsageError, match=r"A crop of 224x224 does not fit into resize = 200"):
        Framing(resize=200)
    with pytest.raises(UsageError, match=r"The crop must have at least 1 pixel, but has 8x0"):
        Framing((8, 0), resize=0)
