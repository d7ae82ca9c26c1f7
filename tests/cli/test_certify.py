import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import bagcert
from bagcert.program import Program
from bagcert.rows import write
from bagcert.rows.accuracy import wilson
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.stored_scores import scores_folder
from tests.cli.calling import call
from tests.rows.digit_runs import DIGITS, save_digit_run, save_view_run
from tests.rows.forging import lines_of

CHOICES = ["--patch", "1x1", "--patch", "1x3", "--rule", "every-region", "--rule", "two-mask"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return save_digit_run(tmp_path / "run")


def test_every_rule_times_every_patch(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passes: list[int] = []
    plain = bagcert.Defense.scores

    def counted(self: bagcert.Defense, images: torch.Tensor, *more: Any) -> object:
        passes.append(len(images))
        return plain(self, images, *more)

    monkeypatch.setattr(bagcert.Defense, "scores", counted)
    assert call(monkeypatch, "certify", str(run), *CHOICES, "--out", "rows.jsonl", "--json") == 0
    assert sum(passes) == len(DIGITS.split("test")), "one forward pass per image"
    said = json.loads(capsys.readouterr().out)
    rows = read_rows(Path("rows.jsonl"))
    assert list(said) == ["model", "data", "images", "clean_accuracy", "results", "seconds", "device", "arithmetic"]
    assert said["arithmetic"] == rows.header["arithmetic"] == str(Program(batch=16)), "what the audit tries by default"
    assert (said["model"], said["data"], said["images"]) == (str(run), "digits", len(rows.labels))
    assert [(entry["patch"], entry["rule"]) for entry in said["results"]] == [
        (patch, rule) for patch in ("1x1", "1x3") for rule in ("every-region", "two-mask")
    ]
    assert said["clean_accuracy"] == said["results"][0]["clean_accuracy"]
    images = torch.cat([batch.images for batch in DIGITS.split("test").batches(100, "cpu")])
    for entry in said["results"]:
        fresh = bagcert.load(run).against(entry["patch"], entry["rule"]).certify(images, exact=False)
        right = fresh.predicted == rows.labels
        assert entry["clean_accuracy"] == float(right.double().mean())
        proven = int((right & fresh.certified).sum())
        assert entry["certified_accuracy"] == proven / len(right)
        assert entry["interval"] == list(wilson(proven, len(right)))
    header = rows.header
    assert header["weights_sha256"] and header["data"]["digest"] == DIGITS.digest and header["split"] == "test"
    assert header["footprint"]["receptive_field"] == [5, 5] and header["scores"]["bounds"] == [0, 1]
    assert header["versions"]["torch"] == torch.__version__ and header["device"].startswith("CPU")


def test_interval_bounds_name_their_own_arithmetic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = save_view_run(tmp_path / "run")
    assert call(monkeypatch, "certify", str(run), "--limit", "2", "--out", str(tmp_path / "rows.jsonl"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["arithmetic"].startswith("torch, cpu, float64, ")


def test_defaults_are_the_cards_and_the_same_command_continues(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert call(monkeypatch, "certify", "run", "--limit", "7", "--device", "cpu") == 0
        (path,) = Path("rows").glob("*.jsonl")
        assert list(read_rows(path).results) == [Evaluation("1x1", "every-region")]
    out = capsys.readouterr().out
    assert "1x1 pixels (1.56 %) of 8x8" in out and f"7 images of digits in 0 s; rows: {path}" in out
    assert call(monkeypatch, "certify", "run", "--limit", "8") == 0
    assert len(list(Path("rows").glob("*.jsonl"))) == 2, "another question has another file"


@pytest.mark.slow
def test_ctrl_c_keeps_the_rows_and_says_how_to_go_on(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, calls = write.certified, [0]

    def interrupted(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return plain(*arguments)  # type: ignore[arg-type]

    command = ("certify", "run", *CHOICES, "--out", "a b.jsonl", "--scores")
    with monkeypatch.context() as patch:
        patch.setattr(write, "certified", interrupted)
        assert call(patch, *command) == 130
    said = capsys.readouterr().err
    assert (
        "stopped; the rows so far are in a b.jsonl; to continue: bagcert certify run" in said and "'a b.jsonl'" in said
    )
    assert len(lines_of(Path("a b.jsonl"))) == 192 * 4
    assert call(monkeypatch, *command) == 0
    assert call(monkeypatch, "certify", "run", *CHOICES, "--out", "whole.jsonl", "--scores") == 0
    assert Path("a b.jsonl").read_text() == Path("whole.jsonl").read_text()
    assert Path("a b.meta.json").read_text() == Path("whole.meta.json").read_text()


@pytest.mark.slow
def test_three_processes_certify_as_one(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["certify", "run", *CHOICES, "--scores", "--limit", "301", "--out"]
    assert call(monkeypatch, *arguments, "one.jsonl") == 0
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "-m", "bagcert"]
    done = subprocess.run(
        [*command, *arguments, "three.jsonl", "--json"],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if not line.startswith("[Gloo]")]  # what torch 2.8 says there
    assert json.loads("\n".join(told))["images"] == 301, "only the first process speaks"
    assert Path("three.jsonl").read_text() == Path("one.jsonl").read_text()
    assert Path("three.meta.json").read_text() == Path("one.meta.json").read_text()
    files, others = (sorted(scores_folder(Path(f"{name}.jsonl")).iterdir()) for name in ("one", "three"))
    assert [path.name for path in files] == [path.name for path in others]
    assert all(path.read_bytes() == other.read_bytes() for path, other in zip(files, others, strict=True))


def picture_folder(folder: Path, names: list[str]) -> Path:
    for place, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        Image.fromarray(np.full((9, 12, 3), 20 * place, np.uint8)).save(folder / name / "a.png")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["none"], "Unknown model or run folder 'none'. "),
        (["run", "--patch", "9x9"], "The patch 9x9 does not fit into an image of 8x8"),
        (["run", "--patch", "big"], "Cannot read the patch 'big'. Write it like 5x5"),
        (["run", "--rule", "two-masks"], "Did you mean 'two-mask'?"),
        (["run", "--split", "tests"], "Did you mean 'test'?"),
        (["run", "--data", "others"], "The classes of others are not the 10 of the model: they differ in"),
        (["run", "--data", "digit"], "Did you mean 'digits'?"),
        (["run", "--out", "rows.json"], "The name of --out must end in .jsonl, but is rows.json."),
        (["run", "--device", "tpu0"], "Unknown device 'tpu0'. Write cpu, cuda or cuda:0, or leave out --device."),
        (["run", "--device", "meta"], "This machine has no device 'meta'. Name cpu, or leave the device out."),
        (["run", "--device", "cuda:99"], "This machine has no device 'cuda:99'."),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], words: str, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture_folder(Path("others"), ["cat", "dog"])
    assert call(monkeypatch, "certify", *arguments, "--limit", "5") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("bagcert: ") and words in lines[0]
    assert not Path("rows").exists()
