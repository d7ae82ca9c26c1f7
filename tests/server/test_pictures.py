"""Decoding: which files become which pixels, and which get which error."""

import io

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from bagcert.pictures import Pixels
from bagcert.server.images import read_picture
from bagcert.server.schemas import RequestError
from tests.server.conftest import LIMITS, file_of, photos
from tests.server.files import bad_files, deep_grey, good_files, many_scans, png, rotated, saved, scene

WORDS = {413: "The picture has ", 415: "This is not a picture in a known format.", 422: "The "}


def read(content: bytes, channels: int = 3) -> Pixels:
    pixels = np.asarray(read_picture(io.BytesIO(content), channels, LIMITS))
    return pixels.reshape(*pixels.shape[:2], channels)


@pytest.mark.parametrize("name", good_files())
def test_good_files_are_answered(name: str, client: TestClient) -> None:
    content = good_files()[name]
    response = client.post("/v1/certify", files={"files": content})
    assert response.status_code == 200, response.text
    original = response.json()["answers"][0]["original"]
    upright = Image.open(io.BytesIO(content)).size
    assert {original["width"], original["height"]} == set(upright)


@pytest.mark.parametrize("name", bad_files())
@pytest.mark.parametrize(("path", "field"), [("/v1/certify", "files"), ("/v1/attack", "file")])
def test_bad_files_get_an_error_that_says_why(name: str, path: str, field: str, client: TestClient) -> None:
    content, status = bad_files()[name]
    response = client.post(path, files={field: ("picture.png", content, "image/png")})
    assert response.status_code == status, response.text
    detail = response.json()["detail"]
    assert detail.startswith(f"File 0: {WORDS[status]}") and detail.endswith(".")


def test_the_bad_file_of_several_is_named(client: TestClient) -> None:
    sent = [("files", ("a", file_of(photos()[0]))), ("files", ("b", b"nonsense"))]
    response = client.post("/v1/certify", files=sent)
    assert response.status_code == 415 and response.json()["detail"].startswith(
        "File 1: This is not a picture in a known format. Send one of PNG, "
    )


def test_lossless_files_keep_their_pixels() -> None:
    for content in (file_of(scene()), file_of(scene(), "BMP"), file_of(scene(), "WEBP", lossless=True)):
        assert np.array_equal(read(content), scene())


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_pictures_stand_upright(kind: str) -> None:
    """Orientation 6: the top of the scene is stored at the left, so the picture is rotated to the right."""
    turned = np.rot90(read(rotated(1, kind)), -1)
    assert np.array_equal(read(rotated(6, kind)), turned)
    assert not np.array_equal(turned, read(rotated(1, kind)))


def test_sixteen_bits_keep_their_upper_eight() -> None:
    levels = (np.arange(144) * 455 // 256).reshape(12, 12)
    assert np.array_equal(read(deep_grey())[:, :, 1], levels)
    assert np.array_equal(read(deep_grey(), channels=1)[:, :, 0], levels)


def test_transparency_is_dropped() -> None:
    hidden = Image.fromarray(np.dstack([scene(), np.zeros((12, 12), np.uint8)]))
    assert np.array_equal(read(saved(hidden, "PNG")), scene())


def test_a_phones_previews_are_left_alone() -> None:
    frames = [Image.fromarray(each) for each in (scene(), photos()[0])]
    content = saved(frames[0], "MPO", save_all=True, append_images=frames[1:])
    assert read(content).shape == (12, 12, 3)


def test_pixels_that_a_png_leaves_out_are_black() -> None:
    """Pillow accepts such files; old content of memory must not show."""
    pixels = read(png(30, 30, b"\0" + b"\xff" * 30), channels=1)
    assert (pixels[0] == 255).all() and not pixels[1:].any()


def test_scans_are_counted() -> None:
    assert read(many_scans(20)).shape == (12, 12, 3)
    with pytest.raises(RequestError) as refused:
        read(many_scans(80))
    assert "The JPEG has more than 64 scans." in refused.value.detail
