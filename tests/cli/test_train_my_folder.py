"""`bagcert train --data FOLDER`: what it says, trains and refuses without a single setting of the caller's."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.data.base import Batch
from bagcert.defense import load
from bagcert.training.trainer import Trainer
from tests.cli.calling import call

QUICK = ["--set", "schedule.epochs=2", "--set", "schedule.warmup_epochs=0.5", "--set", "evaluation.times=1"]
SMALL = [*QUICK, "--set", "training.batch_size=9", "--set", "network.width=8"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Stripes, columns and noise of 8x8 gray pixels: 20 pictures each to train on, 4 to test on."""
    draw = np.random.default_rng(0)
    for part, count in (("train", 20), ("val", 4)):
        for name in ("columns", "noise", "rows"):
            (tmp_path / "pictures" / part / name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 100, (8, 8))
                pixels[::2] += 150 * (name == "rows")
                pixels[:, ::2] += 150 * (name == "columns")
                picture = Image.fromarray(pixels.astype(np.uint8))
                picture.save(tmp_path / "pictures" / part / name / f"{number}.png")
    return tmp_path / "pictures"


def test_a_folder_is_all_it_takes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder.parent)
    assert call(monkeypatch, "train", "--data", "pictures", *SMALL) == 0
    told = capsys.readouterr().out.splitlines()[0]
    found = "72 pictures, 3 classes, 8x8, gray: training at 8x8 with recipe digits against 1x1 patches; about "
    assert re.fullmatch(re.escape(found) + r"\d\.\d GB; 2 epochs in about \d+ (seconds|minutes)", told), told
    defense = load("runs/pictures")
    assert defense.classes == ("columns", "noise", "rows") and defense.framing.channels == 1
    assert defense.card["recipe"]["data"]["resident"] is True
    assert defense.framing.window((480, 640)) == (480, 480), "a photograph is scaled, not cut to its 8x8 middle"
    assert call(monkeypatch, "certify", "runs/pictures", "--data", "pictures", "--out", "rows.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["images"] == 12


def test_the_patch_is_trained_for_and_certified_against(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    plain = Trainer.step

    def watched(self: Trainer, number: int, steps: int, batch: Batch) -> torch.Tensor:
        seen.append(self.loss)
        return plain(self, number, steps, batch)

    monkeypatch.setattr(Trainer, "step", watched)
    order = ["train", "--data", str(folder), "--patch", "2x3", *SMALL, "--out", str(tmp_path / "run")]
    assert call(monkeypatch, *order) == 0
    assert str(load(tmp_path / "run").threat) == "2x3"
    assert {loss.window for loss in seen} == {(4, 5)}, "receptive field 3"  # type: ignore[attr-defined]


def test_the_time_is_estimated_without_a_trace(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that are timed are no part of the training."""
    order = ["train", "--data", str(folder), *SMALL, "--out"]
    assert call(monkeypatch, *order, str(tmp_path / "told")) == 0
    monkeypatch.setattr("bagcert.training.loop.expected_seconds", lambda run: 1.0)
    assert call(monkeypatch, *order, str(tmp_path / "untimed")) == 0
    told, untimed = (tmp_path / name / "weights.safetensors" for name in ("told", "untimed"))
    assert told.read_bytes() == untimed.read_bytes()


def test_an_interrupted_run_continues(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ["train", "--data", str(folder), *SMALL, "--out", str(tmp_path / "run")]
    plain = Trainer.step

    def interrupted(self: Trainer, number: int, steps: int, batch: Batch) -> torch.Tensor:
        if number == 5:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(self, number, steps, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert call(patch, *order) == 130
    assert "stopped; to continue: bagcert train --data" in capsys.readouterr().out
    assert call(monkeypatch, *order, "--resume") == 0
    assert "pictures, 3 classes" not in capsys.readouterr().out, "it was told when the run began"


def test_a_model_is_a_start(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert call(monkeypatch, "train", "--data", str(folder), *SMALL, "--out", first) == 0
    order = ["train", "--data", str(folder), "--start-from", first, "--freeze", *QUICK]
    assert call(monkeypatch, *order, "--set", "training.batch_size=9", "--out", second) == 0
    assert f"with recipe start-head from the weights of {first} against 2x2 patches" in capsys.readouterr().out
    assert load(second).card["recipe"]["network"]["width"] == 8


def test_what_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trainer, "step", lambda *arguments: pytest.fail("a step was taken"))
    monkeypatch.setattr("bagcert.training.loop.free_memory", lambda device: 4 * 10**8 + 10**6)
    order = ["train", "--data", str(folder), *SMALL, "--set", "training.batch_size=50"]
    assert call(monkeypatch, *order, "--out", str(tmp_path / "run")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"bagcert: This needs about .* are free\. Add --set training\.batch_size=\d+.*\.", line)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Name a recipe, or a folder of pictures: bagcert train --data FOLDER. See bagcert recipes."),
        (["--data", "nowhere"], "Unknown data set or folder 'nowhere'."),
        (["--data", "empty"], "empty has no sub-folders. Sort the images into one sub-folder per class."),
        (["--data", "pictures/train"], "pictures/train has no folder 'train'. To hold out one picture in five"),
        (["--data", "pictures", "--start-from", "cifar1"], "Unknown model or run folder 'cifar1'."),
        (["digits", "--start-from", "cifar10-small"], "To start from a model, name the folder to train on."),
        (["--data", "pictures", "--start-from", "cifar10", "--network", "a:b"], "Drop --network or --start-from."),
        (["--data", "pictures", "--freeze"], "Layers can be frozen only if they come from a model."),
        (["--data", "pictures", "--patch", "9x9"], "The patch 9x9 does not fit into an image of 8x8."),
        (["--data", "pictures", "--patch", "0x0"], "The patch 0x0 does not fit into an image of 8x8."),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    words: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder.parent)
    Path("empty").mkdir()
    assert call(monkeypatch, "train", *arguments, "--out", "run") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("bagcert: ") and words in line
    assert not Path("run").exists()


def test_a_broken_picture_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train/rows/7.png").write_bytes(b"no picture")
    assert call(monkeypatch, "train", "--data", str(folder), *SMALL, "--out", str(folder.parent / "run")) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "train/rows/7.png" in line and line.endswith("Remove it, or train with --skip-broken.")


def test_class_folders_are_divided(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new = folder.parent / "new"
    assert call(monkeypatch, "data", str(folder / "train"), "--divide", str(new)) == 0
    assert capsys.readouterr().out == f"copied 48 pictures to {new}/train and 12 to {new}/val\n"
    assert call(monkeypatch, "train", "--data", str(new), *SMALL, "--out", str(folder.parent / "run")) == 0
