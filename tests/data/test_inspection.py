"""What a folder is said to hold before training."""

from pathlib import Path

import pytest
from PIL import Image

from bagcert.data import FolderDataset, FolderSettings
from bagcert.data.divide import divide
from bagcert.data.inspection import look_at
from bagcert.errors import UsageError
from bagcert.pictures import Framing


def fill(folder: Path, sizes: list[tuple[int, int]], mode: str = "RGB") -> Path:
    """One picture of each height and width."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (height, width) in enumerate(sizes):
        picture = Image.new("RGB", (width, height), (20 * number % 256,) * 3)
        picture.convert(mode).save(folder / f"{number}.png")
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        fill(tmp_path / name, [(32, 32)] * 5)
    return tmp_path


def test_pictures_of_one_size(root: Path) -> None:
    look = look_at(root)
    assert (look.pictures, look.training, look.classes, look.typical, look.gray) == (20, 10, 2, (32, 32), False)
    assert look.uniform and str(look) == "20 pictures, 2 classes, 32x32"


def test_mixed_sizes_are_said(root: Path) -> None:
    fill(root / "train/dog", [(20, 400), (30, 30)])
    look = look_at(root)
    assert (look.smallest, look.typical, look.largest) == ((20, 400), (32, 32), (32, 32)) and not look.uniform
    assert str(look) == "20 pictures, 2 classes, mixed sizes from 20x400 to 32x32"


def test_gray_only_if_all_are(root: Path) -> None:
    for part in ("train/cat", "train/dog", "val/cat", "val/dog"):
        fill(root / part, [(32, 32)] * 5, "L")
    assert look_at(root).gray and str(look_at(root)).endswith("32x32, gray")
    fill(root / "val/dog", [(32, 32)], "RGB")
    assert not look_at(root).gray


def test_a_turned_photograph_is_seen_upright(tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for name in ("cat", "dog"):
        folder = fill(tmp_path / "train" / name, [])
        Image.new("RGB", (40, 20)).save(folder / "one.jpg", exif=turned)
    assert look_at(tmp_path).typical == (40, 20)


def test_a_broken_file_is_left_to_the_reader(root: Path) -> None:
    (root / "train/cat/0.png").write_bytes(b"no picture")
    assert look_at(root).pictures == 20


def test_folders_that_cannot_be_trained_on(tmp_path: Path, root: Path) -> None:
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "one/train/cat", [(8, 8)])
    fill(tmp_path / "bad/train/cat", [])
    fill(tmp_path / "bad/train/dog", [])
    for name in ("cat", "dog"):
        (tmp_path / "bad/train" / name / "0.png").write_bytes(b"no picture")
    for folder, words in (
        (tmp_path / "empty", r"empty has no sub-folders\. Sort the images into one sub-folder per class\.$"),
        (tmp_path / "one", r"one/train has one class, 'cat'\. Add a sub-folder for each other class\.$"),
        (tmp_path / "bad", r"^None of the pictures in .*bad can be read, such as .*cat/0\.png\. Check their format\.$"),
        (root / "train", r"has no folder 'train'\. .*: bagcert data .*train --divide train-divided$"),
    ):
        with pytest.raises(UsageError, match=words) as error:
            look_at(folder)
        assert "\n" not in str(error.value)


def test_a_folder_is_divided_once_and_for_all(root: Path, tmp_path: Path) -> None:
    fill(tmp_path / "plain/cat", [(8, 8)] * 11)
    fill(tmp_path / "plain/dog", [(8, 8)] * 4)
    assert divide(tmp_path / "plain", tmp_path / "new") == (12, 3)
    dataset = FolderDataset(tmp_path / "new", FolderSettings(Framing((8, 8), 0), workers=0))
    assert dataset.split("test").labels.tolist() == [0, 1, 0]
    assert len(dataset.split("train+validation")) == 12
    copies = [path.relative_to(tmp_path / "new").parts[1:] for path in (tmp_path / "new").rglob("*.png")]
    assert sorted(copies) == sorted(path.parts[-2:] for path in (tmp_path / "plain").rglob("*.png"))
    with pytest.raises(UsageError, match=r"new exists already\. Choose another name\."):
        divide(tmp_path / "plain", tmp_path / "new")
    with pytest.raises(UsageError, match=r"is divided already: it has a folder '(train|val)'"):
        divide(tmp_path / "new", tmp_path / "newer")
