"""`bagcert ship`: the test pictures are framed as they were in training."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from bagcert.config import write_config
from bagcert.data import FolderDataset, FolderSettings
from bagcert.defense import load
from bagcert.pictures import Framing
from bagcert.scorers.residual import ResidualScorer
from bagcert.training.run import RunFolder, save_run
from tests.cli.calling import call
from tests.onnx.conftest import NAMES, small_defense


def test_a_run_on_a_folder_of_pictures_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    for number in range(12):
        path = tmp_path / "pictures" / ("train", "val")[number % 2] / NAMES[number // 2 % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(torch.randint(256, (14, 12, 3), generator=draw).byte().numpy()).save(path)
    framing = Framing((12, 12), 12)
    dataset = FolderDataset(tmp_path / "pictures", FolderSettings(framing))
    scorer = small_defense("heaviside", "two-mask").scorer
    assert isinstance(scorer, ResidualScorer)
    facts = {
        "classes": list(NAMES),
        "patch": "2x2",
        "rule": "two-mask",
        "framing": write_config(framing),
        "data": {"name": str(tmp_path / "pictures"), "digest": dataset.digest},
    }
    save_run(RunFolder(tmp_path / "run"), scorer, scorer.state_dict(), facts)
    words = ["--out", str(tmp_path / "model"), "--command", "bagcert train --data pictures"]
    assert call(monkeypatch, "ship", str(tmp_path / "run"), *words) == 0
    assert {entry["rule"] for entry in load(tmp_path / "model").card["test"]} >= {"two-mask"}
