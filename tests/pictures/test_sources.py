"""One picture, however it is handed over, gets one answer; what can be read in two ways is refused."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.answers import Answer
from bagcert.config import write_config
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.pictures.sources import frame_pictures
from tests.onnx.conftest import NAMES, pictures, small_defense

FRAMING = Framing((12, 12), 12)


@pytest.fixture(scope="module")
def defense() -> Defense:
    return small_defense("logits", "two-mask")


def bright(height: int = 31, width: int = 40) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    return np.random.default_rng(7).integers(170, 256, (height, width, 3), dtype=np.uint8)


def every_way(pixels: "np.ndarray[Any, np.dtype[np.uint8]]", folder: Path) -> dict[str, Any]:
    picture, planes = Image.fromarray(pixels), pixels.transpose(2, 0, 1)
    picture.save(folder / "picture.png")
    return {
        "path": folder / "picture.png",
        "text": str(folder / "picture.png"),
        "file": io.BytesIO((folder / "picture.png").read_bytes()),
        "PIL": picture,
        "PIL with alpha": Image.fromarray(np.dstack([pixels, pixels[:, :, 0]])),
        "bytes, h w c": pixels,
        "bytes, c h w": planes,
        "floats, h w c": pixels / 255,
        "floats, c h w": (planes / 255).astype(np.float32),
        "half floats": torch.from_numpy(planes / 255).half(),
        "tensor of bytes": torch.from_numpy(planes.copy()),
        "tensor of floats": torch.from_numpy(planes.copy()).float() / 255,
        "tensor, h w c": torch.from_numpy(pixels),
    }


@pytest.mark.parametrize("size", [(31, 40), (12, 12), (5, 64)])
def test_every_way_gives_the_same_answer(defense: Defense, tmp_path: Path, size: tuple[int, int]) -> None:
    ways = every_way(bright(*size), tmp_path)
    wanted = defense(ways["path"])
    assert wanted.own.original == size and wanted.name in NAMES
    for name, way in ways.items():
        if name == "half floats" and size == (12, 12):
            continue  # not framed, so not rounded to the same bytes
        if name == "file":
            way = io.BytesIO((tmp_path / "picture.png").read_bytes())
        found = defense(way)
        assert isinstance(found, Answer) and found.to_dict() == wanted.to_dict(), name
        assert np.array_equal(found.scores, wanted.scores), name
    several = defense([ways["PIL"], ways["bytes, c h w"], ways["text"]])
    assert [each.to_dict() for each in several] == [wanted.to_dict()] * 3
    assert defense.predict(ways["PIL"]).tolist() == [wanted.predicted]
    certificate = defense.certify((ways["PIL"], ways["path"]))
    assert certificate.certified.tolist() == [wanted.certified] * 2


def test_a_batch_of_images_is_taken_as_it_is(defense: Defense) -> None:
    batch = pictures()
    assert defense.images(batch) is batch
    answers = defense(batch)
    assert isinstance(answers, list) and [each.predicted for each in answers] == defense.predict(batch).tolist()
    stacked = defense(batch.numpy())  # floats of the network's size keep their last bit
    assert isinstance(stacked, list)
    for one, other in zip(answers, stacked, strict=True):
        assert one.to_dict() == other.to_dict() and np.array_equal(one.scores, other.scores)
    assert torch.equal(frame_pictures(batch[3], FRAMING).images[0], batch[3])


def test_gray_and_color_become_what_the_network_takes() -> None:
    gray, color = np.arange(144, dtype=np.uint8).reshape(12, 12), bright(12, 12)
    seen = frame_pictures([gray, gray[:, :, None], gray / 255.0], FRAMING).images
    assert seen.shape == (3, 3, 12, 12) and torch.equal(seen[0], seen[1]) and torch.equal(seen[0], seen[2].float())
    one = frame_pictures([color, Image.fromarray(color)], replace(FRAMING, channels=1)).images
    assert one.shape == (2, 1, 12, 12) and torch.equal(one[0], one[1])


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            np.zeros((3, 3, 3), np.uint8),
            r"The shape \[3, 3, 3\] can be read as \[h w c\] or as \[c h w\]. Give the pict",
        ),
        (np.zeros((1, 40, 3), np.uint8), r"The shape \[1, 40, 3\] can be read as"),
        (np.full((12, 12, 3), 255.0), r"Pixels must lie in 0\.\.1, but these are in 255\.\.255\. Divide bytes by 255"),
        (np.full((12, 12, 3), np.nan), r"Pixels must lie in 0\.\.1, but these are in nan\.\.nan"),
        (np.zeros((12, 12, 3), np.int64), r"Pixels are bytes or floats in 0\.\.1, but these are int64\. Use"),
        (np.zeros((12, 12, 2), np.uint8), r"with 1, 3 or 4 channels, but this one has \[12, 12, 2\]"),
        (np.zeros(12, np.uint8), r"but this one has \[12\]"),
        (np.zeros((0, 12, 3), np.uint8), r"The picture has no pixels: its shape is \[0, 12, 3\]"),
        ([], r"There are no pictures\. Give at least one: a path, a PIL image"),
        (7, r"A picture is a path, a PIL image, a NumPy array or a tensor, but this is int\."),
        ([bright(), None], r"but this is NoneType\."),
        ("missing.png", r"missing\.png does not exist\."),
        (".", r"\. is a folder\. Give its pictures, or use `bagcert predict MODEL \.`"),
    ],
)
def test_what_is_not_one_picture_is_refused(wrong: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as told:
        frame_pictures(wrong, FRAMING)
    assert "\n" not in str(told.value)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(b"not a picture")
    with pytest.raises(UsageError, match=r"^Cannot read the image [^\n]*broken\.jpg: [^\n]*$"):
        frame_pictures(path, FRAMING)


def test_an_open_file_is_told_apart_from_text(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"not a picture")
    with path.open() as text, pytest.raises(UsageError, match=r'^The file is open as text\. Open it with .*"rb"\)\.$'):
        frame_pictures(text, FRAMING)  # type: ignore[arg-type]
    with path.open("rb") as file, pytest.raises(UsageError, match=r"from an open file: these bytes are no picture"):
        frame_pictures(file, FRAMING)


def test_answers_speak_of_both_kinds_of_pixels(defense: Defense) -> None:
    framing = Framing((12, 12), 12)
    model = replace(defense, card={"framing": write_config(framing)})
    large = model(Image.fromarray(bright(36, 50)))
    assert large.certified and str(large) == f"{large.name}: no 4x4 patch can change this"
    assert repr(large) == f"<{large}>"
    assert (large.threat_original, large.patch_original, large.square_original) == ("4x4", (4, 4), 4)
    assert large.proven and large.proven_against((4, 4)) and not large.proven_against((5, 1))
    record = large.to_dict()
    assert record["original"]["seen"] == {"row": 0, "column": 7, "height": 36, "width": 36}
    tiny = model(Image.fromarray(pictures()[-1:, :, 4:9, 4:9][0].mul(255).byte().permute(1, 2, 0).numpy()))
    assert tiny.certified and not tiny.proven and tiny.threat_original is None
    told = replace(tiny, alert=False, detectable=True).to_dict()  # promises are about the picture that was given
    assert (told["proven"], told["certified"], told["detectable"]) == (False, False, False)
    assert told["network"] == {"certified": True, "detectable": True}
    told = replace(large, alert=False, detectable=True).to_dict()
    assert (told["proven"], told["certified"], told["detectable"]) == (True, True, True)
    assert str(tiny) == f"{tiny.name}: not proven" and not tiny.proven_against((1, 1))


@pytest.mark.parametrize("fit", ["crop", "squash"])
def test_no_patch_of_the_proven_size_changes_the_class(defense: Defense, fit: str) -> None:
    """White, black and random patches on the picture itself, as large as is proven, at random places."""
    model = replace(defense, card={"framing": write_config(Framing((12, 12), 14, fit=fit))})
    random, tried = np.random.default_rng(3), 0
    for light in (10, 60, 200, 235):
        clean = random.integers(light - 10, light + 20, (50, 71, 3), dtype=np.uint8)
        answer = model(Image.fromarray(clean))
        if answer.patch_original is None:
            continue
        height, width = answer.patch_original
        attacked = np.repeat(clean[None], 60, axis=0)
        for number, picture in enumerate(attacked):
            row, column = random.integers(50 - height + 1), random.integers(71 - width + 1)
            pixels = (0, 255, random.integers(256, size=(height, width, 3)))[number % 3]
            picture[row : row + height, column : column + width] = pixels
        assert set(model.predict(list(attacked)).tolist()) == {answer.predicted}
        tried += 1
    assert tried


def test_several_patches_at_once_are_as_many_in_the_pictures_own_pixels(defense: Defense) -> None:
    two = defense.against("2*1x2")
    large, own = two(Image.fromarray(bright(60, 60))), two(Image.fromarray(bright(12, 12)))
    assert (large.threat_original, own.threat_original) == ("2*1x6", "2*1x2")
    proven = replace(large, certified=True)
    assert proven.proven_against((1, 6)) and not proven.proven_against((2, 1))  # each of them alone


def test_threats_that_are_no_rectangles_anywhere_are_proven_of_the_images_themselves(defense: Defense) -> None:
    """In a framed picture's own pixels they say nothing, but squares inside them do."""
    images = pictures()
    against = defense.against("2x2@lower")
    found = against(images)
    assert isinstance(found, list) and any(each.proven for each in found)
    for answer, proven in zip(found, against.certify(images).certified.tolist(), strict=True):
        assert answer.proven is answer.certified is proven and answer.threat_original == str(against.threat)
    framed = against(Image.fromarray(bright(36, 36)))
    assert framed.threat_original is None and not framed.proven
    assert str(framed) == f"{framed.name}: not proven; 2x2@lower is proven only for pictures of 12x12"
