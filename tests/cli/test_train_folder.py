"""Training on a folder of pictures, laid out as ImageNet is."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.cli.main import main
from bagcert.scorers.weights import load_scorer

CLASSES = 1000
SIZES = [(230, 301), (256, 224), (60, 45), (500, 300)]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand classes with two training pictures and a test picture each, of every mode, format and size."""
    root = tmp_path_factory.mktemp("pictures")
    content = list(varied_files(root))
    for number in range(CLASSES):
        for part, count in (("train", 2), ("val", 1)):
            folder = root / part / f"n{number:08}"
            folder.mkdir(parents=True)
            for index in range(count):
                ending, data = content[(number + index) % len(content)]
                (folder / f"{index}{ending}").write_bytes(data)
    return root


def varied_files(work: Path) -> Iterator[tuple[str, bytes]]:
    """Endings and bytes of pictures: gray, CMYK, palette, transparent, 16-bit, rotated by EXIF; four formats."""
    rng = np.random.default_rng(0)
    rotated = Image.Exif()
    rotated[0x0112] = 6
    forms = [("L", ".jpg"), ("CMYK", ".jpg"), ("P", ".png"), ("RGBA", ".png"), ("I;16", ".png"), ("RGB", ".JPEG")]
    for (mode, ending), (width, height) in zip([*forms, ("RGB", ".webp"), ("P", ".gif")], SIZES * 2, strict=True):
        colors = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        if mode == "I;16":
            picture = Image.fromarray(rng.integers(0, 65536, (height, width), dtype=np.uint16))
        else:
            picture = colors.convert(mode)
        path = work / f"one{ending}"
        picture.save(path, exif=rotated if ending == ".JPEG" else Image.Exif())
        yield ending, path.read_bytes()
        path.unlink()


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["bagcert", "train", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


FEW = [*("--set", "schedule.epochs=0.005", "--set", "schedule.warmup_epochs=0", "--set", "evaluation.times=1")]
FEW += ["--set", "training.batch_size=4", "--set", "evaluation.batch_size=2", "--set", "evaluation.images=2"]


@pytest.mark.full
def test_the_papers_imagenet_recipe_takes_any_such_folder(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    assert run(monkeypatch, "paper-imagenet-rf17", "--data", str(pictures), "--out", str(out), *FEW) == 0
    scorer, card = load_scorer(out)
    assert len(card["classes"]) == CLASSES and scorer.footprint.grid == (56, 56)
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    waits = [line["waited_for_images"] for line in lines if "waited_for_images" in line]
    assert waits and all(0 < share <= 1 for share in waits)


SMALL = ["--set", "data.resize=0", "--set", "data.crop=8", "--set", "network.classes=2", *FEW]
SMALL += ["--set", "network.width=4", "--set", "network.kernels=[1]", "--set", "network.strides=[]"]
SMALL += ["--set", "evaluation.patch=1x1", "--set", "schedule.epochs=1"]


@pytest.fixture
def two_classes(tmp_path: Path) -> Path:
    root = tmp_path / "two classes"
    for name in ("train/cat", "train/dog", "val/cat", "val/dog"):
        (root / name).mkdir(parents=True)
        for number in range(20):
            Image.fromarray(np.full((8, 8, 3), 10 * number, np.uint8)).save(root / name / f"{number}.png")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("resident", ["true", "false"])
def test_broken_pictures_stop_a_run_unless_they_may_be_skipped(
    two_classes: Path,
    resident: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = two_classes / "train/dog/3.png"
    broken.write_bytes(broken.read_bytes()[:40])
    order = ["paper-imagenet-rf17", "--data", str(two_classes), *SMALL, "--set", f"data.resident={resident}"]
    assert run(monkeypatch, *order, "--out", str(tmp_path / "stopped")) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("bagcert: ")]
    assert str(broken) in line and line.endswith("Remove it, or train with --skip-broken.")
    assert run(monkeypatch, *order, "--out", str(tmp_path / "whole"), "--skip-broken") == 0
    assert f"left out 1 images that cannot be read: {tmp_path}/whole/broken.txt" in capsys.readouterr().err
    assert str(broken) in (tmp_path / "whole/broken.txt").read_text()
    assert torch.isfinite(load_scorer(tmp_path / "whole")[0].scores(torch.rand(1, 3, 8, 8)).float()).all()
