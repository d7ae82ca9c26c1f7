import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from bagcert.cli.main import main
from bagcert.data.base import Batch
from bagcert.files import read_tensors
from bagcert.scorers.weights import load_scorer
from bagcert.training.trainer import Trainer

SHORT = ["--set", "schedule.epochs=2", "--set", "schedule.warmup_epochs=1", "--set", "evaluation.times=2"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `bagcert train ...`."""
    monkeypatch.setattr("sys.argv", ["bagcert", "train", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_digits_are_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "digits", "--out", str(tmp_path / "run"), *SHORT) == 0
    out = capsys.readouterr().out
    assert "step 26/26  clean" in out
    assert f"wrote {tmp_path}/run/weights.safetensors" in out.replace("\n", "")
    assert load_scorer(tmp_path / "run")[0].footprint.grid == (8, 8)


def test_the_run_folder_is_named_after_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "digits", *SHORT) == 0
    assert load_scorer(Path("runs/digits"))[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["digist"], "Unknown recipe 'digist'. "),
        (["digits", "--set", "network.widht=3"], "Unknown network key 'widht'. "),
        (["digits", "--set", "data.name=digist"], "Unknown data set or folder 'digist'. "),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, *arguments, "--out", str(tmp_path / "run")) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("bagcert: ") and words in lines[0]


def test_ctrl_c_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = Trainer.step

    def interrupted(self: Trainer, number: int, steps: int, batch: Batch) -> torch.Tensor:
        os.kill(os.getpid(), signal.SIGINT)
        return plain(self, number, steps, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupted)
        assert run(patch, "digits", "--out", str(tmp_path / "a run"), *SHORT) == 130
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("stopped; to continue: ")]
    expected = " ".join(["bagcert train digits --out", f"'{tmp_path}/a run'", *SHORT, "--resume"])
    assert said == [f"stopped; to continue: {expected}"]
    assert run(monkeypatch, "digits", "--out", str(tmp_path / "a run"), *SHORT, "--resume") == 0


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    often = [*SHORT, "--set", "training.checkpoint_seconds=0.0", "--set", "schedule.epochs=6"]
    command = [sys.executable, "-m", "bagcert", "train", "digits", "--out", str(tmp_path / "killed"), *often]
    process = subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.DEVNULL)
    try:
        while steps_in(tmp_path / "killed/checkpoint.safetensors") < 5:
            assert process.poll() is None
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 5 <= steps_in(tmp_path / "killed/checkpoint.safetensors") < 78
    assert run(monkeypatch, "digits", "--out", str(tmp_path / "killed"), *often, "--resume") == 0
    assert run(monkeypatch, "digits", "--out", str(tmp_path / "whole"), *often) == 0
    killed, whole = (tmp_path / name / "weights.safetensors" for name in ("killed", "whole"))
    assert killed.read_bytes() == whole.read_bytes()


def steps_in(checkpoint: Path) -> int:
    """The step of a checkpoint; once it is there, it must be whole at any moment."""
    return int(read_tensors(checkpoint)[1]["step"]) if checkpoint.exists() else 0
