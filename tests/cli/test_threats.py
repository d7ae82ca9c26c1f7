"""`--patch` and `--masks` wherever a threat is taken."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

import bagcert
from bagcert.threats import parse_threat
from tests.cli.calling import call
from tests.rows.digit_runs import DIGITS, save_digit_run

LIMIT = ("--limit", "12")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("disks.npy", parse_threat("disk:4", (8, 8)).pixels().numpy())
    return save_digit_run(tmp_path / "run")


def test_masks_go_through_certify_verify_report_and_attack(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--masks", "disks.npy")
    certify = ("certify", str(run), *LIMIT, *files, "--patch", "disk:4", "--scores", "--out", "rows.jsonl")
    assert call(monkeypatch, *certify, "--json") == 0
    by_text, by_file = json.loads(capsys.readouterr().out)["results"]
    assert by_text.pop("patch") == "disk:4" and (name := by_file.pop("patch")).startswith("masks:")
    assert by_text == by_file
    assert call(monkeypatch, *certify) == 0
    assert name in capsys.readouterr().out
    assert call(monkeypatch, "verify", "rows.jsonl", *files) == 0
    assert "all hold" in capsys.readouterr().out
    assert call(monkeypatch, "attack", str(run), *LIMIT, *files, "--steps", "3", "--out", "attack.jsonl", "--json") == 0
    assert json.loads(capsys.readouterr().out)["patch"] == name
    assert call(monkeypatch, "report", "rows.jsonl", "attack.jsonl", "--out", "page") == 0
    page = next(Path("page").rglob("*.html")).read_text(encoding="utf-8")
    assert f"{name}: sets of pixels from a file" in page and "--masks FILE.npy" in page


def test_a_graph_of_masks_gives_the_certificates_of_the_defense(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(monkeypatch, "export", str(run), "--masks", "disks.npy", "--out", "graph.onnx") == 0
    images = next(iter(DIGITS.split("test").batches(32, torch.device("cpu")))).images
    (found,) = onnxruntime.InferenceSession("graph.onnx").run(["lead"], {"images": images.numpy()})
    expected = bagcert.load(run).against("disk:4").certify(images).lead
    assert expected is not None and found.tolist() == expected.tolist()


def test_patch_and_masks_exclude_each_other(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = ("--patch", "2x2", "--masks", "disks.npy")
    for command in (("attack", str(run)), ("export", str(run), "--out", "graph.onnx")):
        assert call(monkeypatch, *command, *both) == 2
        assert "named by --patch or by --masks, but both are given. Leave one out." in capsys.readouterr().err
