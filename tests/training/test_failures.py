"""Runs that break: what is kept, and what is said."""

import errno
import os
import signal
from pathlib import Path

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.files import read_tensors
from bagcert.scorers.weights import load_scorer
from bagcert.training import Recipe, RunOptions, Stopped, train
from bagcert.training.trainer import Trainer
from tests.training.conftest import after_step, pattern_recipe

pytestmark = pytest.mark.usefixtures("pattern_data")


def fill_with_nan(trainer: Trainer) -> None:
    trainer.scorer.get_parameter("head.weight").data.fill_(torch.nan)


@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["before a checkpoint", "before a log line"])
def test_a_diverged_run_keeps_its_last_good_checkpoint(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_step(monkeypatch, 5, fill_with_nan)
    with pytest.raises(UsageError, match=r"The loss is NaN or infinite by step [56]\. .*\. Lower optimizer"):
        train(
            pattern_recipe(loss={"name": "cross-entropy"}, training={"checkpoint_seconds": seconds}),
            RunOptions(tmp_path),
        )
    tensors, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["step"] == (4 if seconds == 0 else 0)
    assert all(bool(value.isfinite().all()) for value in tensors.values())


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recipe = pattern_recipe(training={"checkpoint_seconds": 0.0})
    with monkeypatch.context() as patch:
        after_step(patch, 5, lambda trainer: patch.setattr(os, "fsync", full))
        with pytest.raises(UsageError, match=r"No space left on device\. The file that was there is kept\."):
            train(recipe, RunOptions(tmp_path))
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["step"] == 4
    (tmp_path / "checkpoint.safetensors.0123.part").touch()  # as a process that was killed leaves it
    train(recipe, RunOptions(tmp_path, resume=True))
    assert not list(tmp_path.glob("*.part"))
    assert load_scorer(tmp_path)[0]


def test_a_folder_that_cannot_be_written_shows_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").write_text("a file")
    monkeypatch.setattr(Trainer, "step", lambda *arguments: pytest.fail("a step was taken"))
    with pytest.raises(UsageError, match=r"^Cannot write "):
        train(pattern_recipe(), RunOptions(tmp_path / "run"))


def test_runs_are_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        after_step(patch, 2, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):
            train(pattern_recipe(), RunOptions(tmp_path))
    with pytest.raises(UsageError, match=r"holds an unfinished run\. Add --resume, or choose another --out\."):
        train(pattern_recipe(), RunOptions(tmp_path))
    for recipe, order in (
        (pattern_recipe(), RunOptions(tmp_path, seed=1, resume=True)),
        (pattern_recipe(), RunOptions(tmp_path, final=True, resume=True)),
        (pattern_recipe(network={"width": 9}), RunOptions(tmp_path, resume=True)),
    ):
        with pytest.raises(UsageError, match=r"The checkpoint in .* has another recipe, seed or data"):
            train(recipe, order)
    train(pattern_recipe(), RunOptions(tmp_path, resume=True))
    for resume in (False, True):
        with pytest.raises(UsageError, match=r"holds a finished run\. Choose another --out\."):
            train(pattern_recipe(), RunOptions(tmp_path, resume=resume))


def test_a_torn_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_step(monkeypatch, 2, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Stopped):
        train(pattern_recipe(), RunOptions(tmp_path))
    checkpoint = tmp_path / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(UsageError, match=r"^Cannot read .* as safetensors: "):
        train(pattern_recipe(), RunOptions(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (
            pattern_recipe(network={"classes": 4}),
            "The data set patterns needs network.classes = 3, not 4. Add --set network.c",
        ),
        (pattern_recipe(network={"channels": 3}), "The data set patterns needs network.channels = 1, not 3"),
        (
            pattern_recipe(training={"batch_size": 136}),
            "batch_size must be at most 135, the number of images, but is 136",
        ),
        (pattern_recipe(evaluation={"patch": "9x9"}), r"The patch 9x9 does not fit into an image of 8x8\. Choose"),
        (pattern_recipe(evaluation={"patch": "99x99"}), r"The patch 99x99 does not fit into an image of 8x8\. Choose"),
        (pattern_recipe(evaluation={"rule": "every"}), "Unknown rule 'every'. .*Known: "),
    ],
)
def test_misfits_are_named_before_the_first_step(recipe: Recipe, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        train(recipe, RunOptions(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
