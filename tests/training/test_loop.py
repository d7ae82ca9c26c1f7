"""Whole runs on the CPU: finished, stopped and resumed, timed."""

import os
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bagcert.data import ArrayDataset
from bagcert.distributed import World
from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_json, read_tensors, write_atomically
from bagcert.scorers.weights import load_scorer
from bagcert.training import RunOptions, Stopped, train
from bagcert.training.trainer import Trainer, build_scorer
from bagcert.training.validation import validate
from tests.training.conftest import after_step, losses, pattern_recipe, rival_recipe

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("pattern_data")]

ABLATION: dict[str, object] = {"name": "ablation", "kept": [8, 3], "width": 4, "blocks": [1]}
CLEANSER: dict[str, object] = {"name": "cleanser", "patch": [1, 1], "masks": 2, "width": 4, "blocks": [1]}
INTERVAL: dict[str, object] = {"name": "interval", "patch": [1, 1], "widths": [4], "strides": [2], "features": 8}
KINDS = {
    "muon": pattern_recipe(),
    "adam": pattern_recipe(optimizer={"name": "adam"}),
    "shake": pattern_recipe(network={"paths": 2, "shake": True}),
    "average": pattern_recipe(training={"average": 0.9}),
    "ablation": rival_recipe(ABLATION, rule="every-region"),
    "cleanser": rival_recipe(CLEANSER),
    "interval": rival_recipe(INTERVAL, loss="interval"),
}


def test_a_run_leaves_weights_card_recipe_and_log(tmp_path: Path, pattern_data: ArrayDataset) -> None:
    recipe = pattern_recipe(schedule={"epochs": 12})
    train(recipe, RunOptions(out=tmp_path, seed=5))
    assert {path.name for path in tmp_path.iterdir()} == {
        *("recipe.toml", "log.jsonl", "tensorboard", "weights.safetensors", "config.json"),
    }
    card = read_json(tmp_path / "config.json")
    assert card["classes"] == ["rows", "columns", "checkers"]
    assert card["data"] == {"name": "patterns", "digest": "patterns-1"}
    assert (card["seed"], card["steps"], card["patch"], card["rule"]) == (5, 108, "1x1", "every-region")
    assert card["recipe"] == recipe.table()
    assert [step for step, _ in losses(tmp_path)] == list(range(1, 109))
    scorer = load_scorer(tmp_path)[0]
    found = validate(
        scorer,
        None,
        pattern_data.split("validation"),
        pattern_data.classes,
        recipe.evaluation,
        World(torch.device("cpu")),
    )
    assert card["validation"] == {
        "clean": found.clean,
        "certified": found.certified,
        "images": 15,
        "trained_on": False,
    }
    assert found.clean > 0.9 and found.certified > 0.5
    votes = scorer.scores(torch.cat([batch.images for batch in pattern_data.split("validation").batches(15, "cpu")]))
    assert found.votes == pytest.approx(float(votes.sum(dim=1).float().mean()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [4, 9, 27])
def test_a_stopped_run_resumes_bit_for_bit(
    kind: str, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(KINDS[kind], RunOptions(out=tmp_path / "whole"))
    with monkeypatch.context() as patch:
        after_step(patch, step, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            train(KINDS[kind], RunOptions(out=tmp_path / "parts"))
    assert read_tensors(tmp_path / "parts/checkpoint.safetensors")[1]["step"] == step
    with (tmp_path / "parts/log.jsonl").open("a") as log:
        log.write('{"step": 99, "loss": 1.0}\n{"step": 10')  # written after the checkpoint, the last line torn
    train(KINDS[kind], RunOptions(out=tmp_path / "parts", resume=True))
    assert (tmp_path / "parts/weights.safetensors").read_bytes() == (
        tmp_path / "whole/weights.safetensors"
    ).read_bytes()
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")


def test_a_checkpoint_with_another_recipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        after_step(patch, 4, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            train(KINDS["muon"], RunOptions(out=tmp_path))
    tensors, facts = read_tensors(tmp_path / "checkpoint.safetensors")
    for key, value in (("nothing", 0), ("images", 7), ("images", None)):  # one key more, another value, one less
        evaluation = {**facts["identity"]["recipe"]["evaluation"], key: value}
        evaluation = {name: entry for name, entry in evaluation.items() if entry is not None}
        changed = {**facts["identity"], "recipe": {**facts["identity"]["recipe"], "evaluation": evaluation}}
        # A new file: the tensors are still read from the old one.
        write_atomically(tmp_path / "checkpoint.safetensors", pack_tensors(tensors, {**facts, "identity": changed}))
        with pytest.raises(UsageError, match="has another recipe, seed or data"):
            train(KINDS["muon"], RunOptions(out=tmp_path, resume=True))


@pytest.mark.parametrize(
    ("network", "loss", "words"),
    [
        (
            ABLATION,
            "margin",
            "loss 'margin' does not read logits of whole images, which .* --set loss.name=cross-entropy\\.$",
        ),
        (
            CLEANSER,
            "two-mask",
            "loss 'two-mask' does not read logits of masked images, which .* --set loss.name=cross-entropy or unmasked",
        ),
        (
            INTERVAL,
            "cross-entropy",
            "loss 'cross-entropy' does not read margins, which .* --set loss.name=interval\\.$",
        ),
        (
            {"width": 8, "kernels": [1]},
            "interval",
            "loss 'interval' does not read scores of regions, which .* --set loss.name=margin or ",
        ),
    ],
)
def test_losses_that_do_not_fit_the_network_are_refused(
    network: dict[str, object], loss: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=words):
        train(rival_recipe(network, loss), RunOptions(out=tmp_path))


def test_strides_need_some_channels_on_a_cpu(tmp_path: Path, pattern_data: ArrayDataset) -> None:
    few: dict[str, object] = {"width": [15, 8], "strides": [2]}
    with pytest.raises(
        UsageError, match=r"On a CPU, a strided 1x1 convolution needs at least 16 input channels, but .* has 15"
    ):
        train(pattern_recipe(network=few), RunOptions(out=tmp_path))
    train(pattern_recipe(network={"width": [16, 8], "strides": [2]}, schedule={"epochs": 1}), RunOptions(out=tmp_path))


def test_validation_may_take_the_first_images_only(pattern_data: ArrayDataset) -> None:
    recipe = pattern_recipe(evaluation={"batch_size": 4, "images": 5})
    scorer = build_scorer(recipe, pattern_data)
    split = pattern_data.split("validation")
    found = validate(scorer, None, split, pattern_data.classes, recipe.evaluation, World(torch.device("cpu")))
    assert found.images == 8, "two whole batches"
    with pytest.raises(UsageError, match=r"The value of evaluation.images must be at least 0, but is -1"):
        pattern_recipe(evaluation={"images": -1})


def test_a_rule_for_views_needs_a_network_of_views(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Rule 'unanimous' needs a network of views, but these scores"):
        train(pattern_recipe(evaluation={"rule": "unanimous"}), RunOptions(out=tmp_path))


def test_another_seed_gives_other_weights(tmp_path: Path) -> None:
    for seed in (0, 1):
        train(pattern_recipe(schedule={"epochs": 0.4}), RunOptions(out=tmp_path / str(seed), seed=seed))
    assert losses(tmp_path / "0") != losses(tmp_path / "1")


def test_the_average_is_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[dict[str, Tensor]] = []

    def keep(trainer: Trainer) -> None:
        assert trainer.average is not None
        kept.append({name: value.clone() for name, value in trainer.average.values.items()})

    after_step(monkeypatch, 27, keep)
    train(KINDS["average"], RunOptions(out=tmp_path))
    torch.testing.assert_close(load_scorer(tmp_path)[0].state_dict(), kept[0], rtol=0, atol=0)


def test_minutes_fix_the_steps_and_change_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.training.loop.WARMUP_STEPS", 2)
    monkeypatch.setattr("bagcert.training.loop.TIMED_STEPS", 3)
    train(pattern_recipe(training={"average": 0.9}), RunOptions(out=tmp_path / "timed", minutes=0.02))
    card = read_json(tmp_path / "timed/config.json")
    assert card["steps"] > 1 and card["seconds"] < 5
    epochs = {"epochs": card["steps"] / 9, "warmup_epochs": card["steps"] / 90}
    train(pattern_recipe(training={"average": 0.9}, schedule=epochs), RunOptions(out=tmp_path / "plain"))
    assert losses(tmp_path / "timed") == losses(tmp_path / "plain")


def test_minutes_that_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"No time is left for a step, which takes .* s\. Allow more --minutes"):
        train(pattern_recipe(), RunOptions(out=tmp_path, minutes=0.0))


def test_final_trains_on_the_validation_images_too(tmp_path: Path) -> None:
    train(pattern_recipe(schedule={"epochs": 1}), RunOptions(out=tmp_path, final=True))
    card = read_json(tmp_path / "config.json")
    assert card["steps"] == 10  # 150 images instead of 135
    assert card["validation"]["trained_on"] is True


def test_plain_lines_and_a_progress_bar(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train(pattern_recipe(), RunOptions(tmp_path / "plain"))
    out = capsys.readouterr().out
    assert "step 27/27  loss " in out and "images/s  0:00:00 left" in out
    assert "step 9/27  clean " in out and "  certified " in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    train(pattern_recipe(), RunOptions(tmp_path / "bar"))
    assert "27/27" in capsys.readouterr().out


def test_without_tensorboard_the_log_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    train(pattern_recipe(), RunOptions(tmp_path))
    assert not (tmp_path / "tensorboard").exists()
    assert len(losses(tmp_path)) == 27
