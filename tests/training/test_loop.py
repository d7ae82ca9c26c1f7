"""A whole run on the CPU, stopped and broken in every way."""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bagcert.data import ArrayDataset
from bagcert.data.base import Batch
from bagcert.errors import UsageError
from bagcert.training import Order, Recipe, Stopped, load_run, train
from bagcert.training.files import read_json, read_tensors
from bagcert.training.trainer import Trainer
from bagcert.training.validation import validate
from bagcert.training.world import World
from tests.training.conftest import pattern_recipe

pytestmark = pytest.mark.usefixtures("pattern_data")

KINDS = {
    "muon": pattern_recipe(),
    "adam": pattern_recipe(optimizer={"name": "adam"}),
    "shake": pattern_recipe(network={"paths": 2, "shake": True}),
    "average": pattern_recipe(training={"average": 0.9}),
}


def losses(folder: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def after_step(monkeypatch: pytest.MonkeyPatch, step: int, act: Callable[[Trainer], None]) -> None:
    """Do something after training step number `step`, counted from 1."""
    plain = Trainer.step

    def patched(self: Trainer, number: int, steps: int, batch: Batch) -> Tensor:
        loss = plain(self, number, steps, batch)
        if number + 1 == step:
            act(self)
        return loss

    monkeypatch.setattr(Trainer, "step", patched)


def test_a_run_leaves_weights_card_recipe_and_log(tmp_path: Path, pattern_data: ArrayDataset) -> None:
    recipe = pattern_recipe(schedule={"epochs": 12})
    train(recipe, Order(out=tmp_path, seed=5))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("recipe.toml", "log.jsonl", "tensorboard", "weights.safetensors", "config.json"),
    }
    card = read_json(tmp_path / "config.json")
    assert card["classes"] == ["rows", "columns", "checkers"]
    assert card["data"] == {"name": "patterns", "digest": "patterns-1"}
    assert (card["seed"], card["steps"], card["patch"], card["rule"]) == (5, 108, "1x1", "every-region")
    assert card["recipe"] == recipe.table()
    assert [step for step, _ in losses(tmp_path)] == list(range(1, 109))
    scorer = load_run(tmp_path)
    found = validate(scorer, None, pattern_data.split("validation"), recipe.evaluation, World(torch.device("cpu")))
    assert card["validation"] == {
        "clean": found.clean,
        "certified": found.certified,
        "images": 15,
        "trained_on": False,
    }
    assert found.clean > 0.9 and found.certified > 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [4, 9, 27])
def test_a_stopped_run_resumes_bit_for_bit(
    kind: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(KINDS[kind], Order(out=tmp_path / "whole"))
    with monkeypatch.context() as patch:
        after_step(patch, step, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            train(KINDS[kind], Order(out=tmp_path / "parts"))
    assert read_tensors(tmp_path / "parts/checkpoint.safetensors")[1]["step"] == step
    with (tmp_path / "parts/log.jsonl").open("a") as log:
        log.write('{"step": 99, "loss": 1.0}\n{"step": 10')  # written after the checkpoint, the last line torn
    train(KINDS[kind], Order(out=tmp_path / "parts", resume=True))
    assert (tmp_path / "parts/weights.safetensors").read_bytes() == (
        tmp_path / "whole/weights.safetensors"
    ).read_bytes()
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    for seed in (0, 1):
        train(pattern_recipe(schedule={"epochs": 0.4}), Order(out=tmp_path / str(seed), seed=seed))
    assert losses(tmp_path / "0") != losses(tmp_path / "1")


def test_the_average_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, Tensor]] = []

    def keep(trainer: Trainer) -> None:
        assert trainer.average is not None
        kept.append({name: value.clone() for name, value in trainer.average.values.items()})

    after_step(monkeypatch, 27, keep)
    train(KINDS["average"], Order(out=tmp_path))
    torch.testing.assert_close(load_run(tmp_path).state_dict(), kept[0], rtol=0, atol=0)


def test_minutes_fix_the_steps_and_change_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.training.speed.WARMUP_STEPS", 2)
    monkeypatch.setattr("bagcert.training.speed.TIMED_STEPS", 3)
    train(pattern_recipe(training={"average": 0.9}), Order(out=tmp_path / "timed", minutes=0.02))
    card = read_json(tmp_path / "timed/config.json")
    assert card["steps"] > 1 and card["seconds"] < 5
    epochs = {"epochs": card["steps"] / 9, "warmup_epochs": card["steps"] / 90}
    train(pattern_recipe(training={"average": 0.9}, schedule=epochs), Order(out=tmp_path / "plain"))
    assert losses(tmp_path / "timed") == losses(tmp_path / "plain")


def test_minutes_that_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"expected --minutes for at least one step of .* s, got a time that is over"):
        train(pattern_recipe(), Order(out=tmp_path, minutes=0.0))


def test_final_trains_on_the_validation_images_too(tmp_path: Path) -> None:
    train(pattern_recipe(schedule={"epochs": 1}), Order(out=tmp_path, final=True))
    card = read_json(tmp_path / "config.json")
    assert card["steps"] == 10  # 150 images instead of 135
    assert card["validation"]["trained_on"] is True


def fill_with_nan(trainer: Trainer) -> None:
    trainer.scorer.head.weight.data.fill_(torch.nan)


@pytest.mark.parametrize("seconds", [0.0, 1000.0], ids=["before a checkpoint", "before a log line"])
def test_a_diverged_run_keeps_its_last_good_checkpoint(
    seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_step(monkeypatch, 5, fill_with_nan)
    with pytest.raises(
        UsageError, match=r"expected a finite loss, got NaN or infinity by step [56]; .*; lower optimizer"
    ):
        train(pattern_recipe(loss={"name": "cross-entropy"}, training={"checkpoint_seconds": seconds}), Order(tmp_path))
    tensors, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    assert facts["step"] == (4 if seconds == 0 else 0)
    assert all(bool(value.isfinite().all()) for value in tensors.values())


def test_a_full_disk_keeps_the_last_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    recipe = pattern_recipe(training={"checkpoint_seconds": 0.0})
    with monkeypatch.context() as patch:
        after_step(patch, 5, lambda trainer: patch.setattr(os, "fsync", full))
        with pytest.raises(UsageError, match="No space left on device; what was there is kept"):
            train(recipe, Order(tmp_path))
    assert read_tensors(tmp_path / "checkpoint.safetensors")[1]["step"] == 4
    train(recipe, Order(tmp_path, resume=True))
    assert load_run(tmp_path)


def test_a_folder_that_cannot_be_written_shows_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").write_text("a file")
    monkeypatch.setattr(Trainer, "step", lambda *arguments: pytest.fail("a step was taken"))
    with pytest.raises(UsageError, match="expected to write"):
        train(pattern_recipe(), Order(tmp_path / "run"))


def test_runs_are_never_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        after_step(patch, 2, lambda trainer: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(Stopped):
            train(pattern_recipe(), Order(tmp_path))
    with pytest.raises(UsageError, match="holds a run; add --resume to go on with it"):
        train(pattern_recipe(), Order(tmp_path))
    for recipe, order in (
        (pattern_recipe(), Order(tmp_path, seed=1, resume=True)),
        (pattern_recipe(), Order(tmp_path, final=True, resume=True)),
        (pattern_recipe(network={"width": 9}), Order(tmp_path, resume=True)),
    ):
        with pytest.raises(UsageError, match=r"expected the recipe, seed and data of the checkpoint in .*, got others"):
            train(recipe, order)
    train(pattern_recipe(), Order(tmp_path, resume=True))
    for resume in (False, True):
        with pytest.raises(UsageError, match="which holds a finished run; choose another"):
            train(pattern_recipe(), Order(tmp_path, resume=resume))


def test_a_torn_checkpoint_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after_step(monkeypatch, 2, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(Stopped):
        train(pattern_recipe(), Order(tmp_path))
    checkpoint = tmp_path / "checkpoint.safetensors"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    with pytest.raises(UsageError, match="expected a whole safetensors file"):
        train(pattern_recipe(), Order(tmp_path, resume=True))


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (
            pattern_recipe(network={"classes": 4}),
            "expected network.classes = 3 for patterns, got 4; add --set network.c",
        ),
        (pattern_recipe(network={"channels": 3}), "expected network.channels = 1 for patterns, got 3"),
        (pattern_recipe(training={"batch_size": 136}), "expected training.batch_size of at most 135 images, got 136"),
        (
            pattern_recipe(loss={"name": "two-mask", "window": [9, 9]}),
            "expected loss.window within 8x8 outputs, got 9x9",
        ),
        (pattern_recipe(evaluation={"patch": "9x9"}), "expected .*, got"),
        (pattern_recipe(evaluation={"rule": "every"}), "expected .*, got 'every'"),
    ],
)
def test_misfits_are_named_before_the_first_step(recipe: Recipe, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        train(recipe, Order(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_plain_lines_and_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(pattern_recipe(), Order(tmp_path / "plain"))
    out = capsys.readouterr().out
    assert "step 27/27  loss " in out and "images/s  0:00:00 left" in out
    assert "step 9/27  clean " in out and "  certified " in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    train(pattern_recipe(), Order(tmp_path / "bar"))
    assert "27/27" in capsys.readouterr().out


def test_without_tensorboard_the_log_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    train(pattern_recipe(), Order(tmp_path))
    assert not (tmp_path / "tensorboard").exists()
    assert len(losses(tmp_path)) == 27
