"""Training that begins with the weights of a model."""

from pathlib import Path

import pytest
import torch

from bagcert.data import ArrayDataset
from bagcert.errors import UsageError
from bagcert.files import read_tensors, sha256
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import load_scorer, save_scorer
from bagcert.training import RunOptions, train
from bagcert.training.initial_weights import take_weights
from tests.training.conftest import pattern_recipe

SHAPE = {"channels": 1, "width": 8, "kernels": (1,), "paths": 1, "shake": False, "positions": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model of five classes, with statistics of its own."""
    torch.manual_seed(7)
    scorer = ResidualConfig(classes=5, **SHAPE).build((8, 8), (0.3,), (0.2,))  # type: ignore[arg-type]
    for _ in range(3):
        scorer(torch.rand(4, 1, 8, 8))
    save_scorer(tmp_path / "model", scorer, scorer.state_dict(), {"rule": "every-region", "patch": "1x1"})
    return tmp_path / "model"


def started(model: Path, **training: object) -> dict[str, dict[str, object]]:
    return {"network": {"positions": True}, "training": {"start": str(model), **training}}


def test_all_but_the_head_is_taken(model: Path) -> None:
    theirs = load_scorer(model)[0].state_dict()
    scorer = ResidualConfig(classes=3, **SHAPE).build((8, 8), (0.0,), (1.0,))  # type: ignore[arg-type]
    head = {name: value.clone() for name, value in scorer.state_dict().items() if name.startswith("head.")}
    take_weights(scorer, str(model))
    for name, value in scorer.state_dict().items():
        assert torch.equal(value, head[name] if name in head else theirs[name]), name


def test_positions_of_another_size_are_new(model: Path) -> None:
    scorer = ResidualConfig(classes=3, **SHAPE).build((6, 6), (0.0,), (1.0,))  # type: ignore[arg-type]
    before = scorer.state_dict()["positions"].clone()
    take_weights(scorer, str(model))
    assert torch.equal(scorer.state_dict()["positions"], before)
    assert torch.equal(scorer.state_dict()["normalize.mean"].flatten(), torch.tensor([0.3]))


def test_another_network_is_refused(model: Path) -> None:
    scorer = ResidualConfig(classes=3, **{**SHAPE, "width": 9}).build((8, 8), (0.0,), (1.0,))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"network of the recipe is not that of .*: they differ in 'stem\.0\.weight'"):
        take_weights(scorer, str(model))


@pytest.mark.usefixtures("pattern_data")
def test_frozen_layers_stay_as_they_were(model: Path, tmp_path: Path) -> None:
    quick: dict[str, object] = {"name": "muon", "other_lr": 0.1}
    recipe = pattern_recipe(**started(model, freeze=True), loss={"name": "cross-entropy"}, optimizer=quick)
    train(recipe, RunOptions(tmp_path / "run"))
    theirs, own = load_scorer(model)[0].state_dict(), read_tensors(tmp_path / "run/weights.safetensors")[0]
    for name, value in own.items():
        if not name.startswith("head."):
            assert torch.equal(value, theirs[name]), name
    scorer, card = load_scorer(tmp_path / "run")
    assert card["validation"]["clean"] > 0.5, "a new head learns"
    assert card["recipe"]["training"]["start"] == str(model)
    weights = (model / "weights.safetensors").read_bytes()
    assert card["start"] == {"model": str(model), "weights_sha256": sha256(weights)}
    assert all(parameter.requires_grad for parameter in scorer.parameters())


def test_without_freezing_all_layers_learn(model: Path, tmp_path: Path, pattern_data: ArrayDataset) -> None:
    recipe = pattern_recipe(**started(model), loss={"name": "cross-entropy"})
    train(recipe, RunOptions(tmp_path / "run"))
    theirs, own = load_scorer(model)[0].state_dict(), read_tensors(tmp_path / "run/weights.safetensors")[0]
    changed = {name for name, value in own.items() if name not in theirs or not torch.equal(value, theirs[name])}
    assert changed >= {"stem.0.weight", "positions", "head.weight"}
    assert "normalize.mean" not in changed, "the first weights rely on it"


def test_only_a_start_can_be_frozen() -> None:
    with pytest.raises(UsageError, match=r"Layers can be frozen only if they come from a model\. Add --start-from"):
        pattern_recipe(training={"freeze": True})
