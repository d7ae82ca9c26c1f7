"""Shipped models: their files, their cards, and their certificates made again on this machine."""

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.config import write_config
from bagcert.data import load_dataset
from bagcert.errors import UsageError
from bagcert.files import sha256
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.shipping import card_table
from bagcert.rules import IntegerScores, read_scores
from bagcert.shipped import WEIGHTS_SHA256
from bagcert.stored_models import card, shipped_models
from bagcert.training.recipe import load_recipe
from studies.distilled.command import KERNELS, SIZES
from tests.rows.digit_runs import save_digit_run

MODELS = shipped_models()
BY_RECIPE = [name for name in MODELS if "recipe" in card(name)]
DISTILLED = {"cifar10": "huge", "cifar10-distilled": "small"}  # and their sizes
IMAGES = {name: 32 if name == "cifar10" else 128 for name in MODELS}  # that one has four times the arithmetic
# What another CPU may change: 2 of 256 units of a logit; votes whose logit is this close to 0.
SLACK, NEAR_ZERO = 2, 2 / 256


def test_all_models_together_are_small() -> None:
    assert {"cifar10", "cifar10-small"} <= set(MODELS)
    weights = [folder / "weights.safetensors" for folder in MODELS.values()]
    assert sum(path.stat().st_size for path in weights) <= 27e6


def test_the_table_of_digests_is_that_of_the_files() -> None:
    files = {name: sha256((folder / "weights.safetensors").read_bytes()) for name, folder in MODELS.items()}
    assert files == WEIGHTS_SHA256


def test_other_weights_under_a_shipped_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a card that fits them: the digest beside the file proves nothing."""
    forged = tmp_path / "cifar10-small"
    shutil.copytree(save_digit_run(tmp_path / "run"), forged)
    bagcert.load(forged)  # a folder of one's own
    for module in ("defense", "stored_models"):
        monkeypatch.setattr(f"bagcert.{module}.shipped_models", lambda: {"cifar10-small": forged})
    for name in ("cifar10-small", forged):
        with pytest.raises(UsageError, match=r"are not those that this version ships\. Install bagcert again\."):
            bagcert.load(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_card_says_what_the_rows_say(name: str) -> None:
    facts = card(name)
    assert facts["test"] == card_table(MODELS[name] / "rows.jsonl.gz")
    assert (facts["patch"], facts["rule"]) in [(row["patch"], row["rule"]) for row in facts["test"]]
    rows = read_rows(MODELS[name] / "rows.jsonl.gz")
    assert rows.header["weights_sha256"] == facts["weights_sha256"]
    assert rows.header["data"] == facts["data"]
    assert len(rows.labels) == 10_000
    how = "teacher" if name in DISTILLED else "recipe"
    for key in ("command", "beside", "seed", "device", "seconds", "steps", how, "versions"):
        assert facts[key] not in (None, ""), key


@pytest.mark.parametrize("name", BY_RECIPE)
def test_the_command_on_the_card_trains_what_the_card_says(name: str) -> None:
    facts = card(name)
    words = facts["command"].split()
    assert words[:2] == ["bagcert", "train"] and words[3:] == ["--final", "--seed", str(facts["seed"])]
    recipe = load_recipe(words[2], [])
    assert write_config(recipe.network).items() >= facts["scorer"]["network"].items()
    for section in ("optimizer", "schedule"):
        assert write_config(getattr(recipe, section)) == facts["recipe"][section]
    defense = bagcert.load(name)
    loss = recipe.loss.against(defense.threat, defense.scorer.footprint)
    trained = {key: getattr(loss, key) for key in facts["recipe"]["loss"] if key != "name"}
    assert json.loads(json.dumps(trained)) == {
        key: value for key, value in facts["recipe"]["loss"].items() if key != "name"
    }
    assert write_config(recipe.loss)["name"] == facts["recipe"]["loss"]["name"]
    images = 50_000 // recipe.training.batch_size
    assert facts["steps"] == round(recipe.schedule.epochs * images)


@pytest.mark.parametrize(("name", "size"), DISTILLED.items())
def test_the_command_on_the_card_distills_what_the_card_says(name: str, size: str) -> None:
    facts = card(name)
    words = facts["command"].split()
    assert words[:3] == ["python", "-m", "studies"] and words[3] == "distilled" and "--final" in words
    given = list(pairwise(words))
    assert [int(value) for key, value in given if key == "--seed"] == facts["seeds"] == [0, 1]
    assert facts["seed"] == 0  # the first one, not the best one
    assert dict(given)["--teacher"] == f"runs/{facts['teacher']}" and load_recipe(facts["teacher"], [])
    assert dict(given).get("--size", "small") == size
    assert float(dict(given)["--masked"]) == facts["masked"]
    assert facts["seconds"] <= 60 * float(dict(given)["--minutes"]) + 1
    fields = (7, 5)
    table = facts["scorer"]["network"]
    assert [tuple(each) for each in table["width"]] == [SIZES[size][field] for field in fields]
    assert [tuple(each) for each in table["kernels"]] == [KERNELS[field] for field in fields]


def test_a_model_is_trained_by_a_recipe_or_by_a_teacher() -> None:
    assert set(MODELS) == {*BY_RECIPE, *DISTILLED} and not set(BY_RECIPE) & set(DISTILLED)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_certificates_come_out_again(name: str, cifar10_dir: Path) -> None:
    """Image by image as in the rows, except where the guard band makes the answer uncertain."""
    defense = bagcert.load(name)
    dataset = load_dataset("cifar10", cifar10_dir)
    assert dataset.digest == card(name)["data"]["digest"]
    images = IMAGES[name]
    batch = next(dataset.split("test").batches(images, "cpu"))
    stored = read_rows(MODELS[name] / "rows.jsonl.gz").results[Evaluation(str(defense.threat), defense.rule.name)]
    scores = defense.scores(batch.images)
    fresh = defense.certify_integers(scores)
    guarded = defense.certify_integers(guarded_scores(defense, batch.images, scores), exact=False)

    sure = guarded.certified  # holds whatever the band changes, so on every machine
    assert torch.equal(fresh.predicted[sure], stored.predicted[:images][sure])
    assert bool(stored.certified[:images][sure].all())
    same = (fresh.predicted == stored.predicted[:images]) & (fresh.certified == stored.certified[:images])
    assert fresh.lead is not None
    cells = defense.scorer.footprint.grid[0] * defense.scorer.footprint.grid[1]
    assert bool((fresh.lead.abs()[~same] <= 2 * SLACK * cells).all()), "differs where nothing was uncertain"
    assert int(sure.sum()) > 0.9 * int(fresh.certified.sum()), "the band swallows what it should protect"


def guarded_scores(defense: bagcert.Defense, images: torch.Tensor, scores: IntegerScores) -> IntegerScores:
    if scores.bounds != (0, 1):
        return read_scores(scores.values, scores.bounds, slack=SLACK)
    parts = images.contiguous(memory_format=torch.channels_last).split(20)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        near = torch.cat([defense.scorer.logits(part).abs() <= NEAR_ZERO for part in parts])
    return read_scores(scores.values, scores.bounds, uncertain=near)
