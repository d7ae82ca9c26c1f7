"""A small network trained for real, once for all tests here: 8x8 digits, votes, receptive field 3."""

from dataclasses import replace
from pathlib import Path

import pytest

from bagcert.data import Batch, load_dataset
from bagcert.scorers.residual import ResidualScorer
from bagcert.scorers.weights import load_scorer
from bagcert.training.loop import RunOptions, train
from bagcert.training.recipe import load_recipe

SETTINGS = (
    "network.step=heaviside",
    "network.width=32",
    "loss.name=margin",
    "loss.margin=0.5",
    "schedule.epochs=20",
    "schedule.warmup_epochs=2",
    "evaluation.times=1",
)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("digits") / "run"
    train(load_recipe("digits", SETTINGS), RunOptions(out=folder))
    return folder


@pytest.fixture(scope="session")
def votes(run: Path) -> ResidualScorer:
    scorer = load_scorer(run)[0]
    assert isinstance(scorer, ResidualScorer)
    return scorer


@pytest.fixture(scope="session")
def logits(votes: ResidualScorer) -> ResidualScorer:
    """The same weights without the last step: for rules that need no bounds."""
    plain = ResidualScorer(replace(votes.config, step="logits"), votes.image_size)
    plain.load_state_dict(votes.state_dict())
    return plain.eval()


@pytest.fixture(scope="session")
def digits() -> Batch:
    return next(load_dataset("digits").split("test").batches(120, "cpu"))
