"""A data set of easy patterns, and a recipe that learns it in a second."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from bagcert.data import ArrayDataset, Arrays
from bagcert.data.base import Batch
from bagcert.training import Recipe
from bagcert.training.losses import MarginLoss
from bagcert.training.recipe import read_recipe
from bagcert.training.trainer import Trainer


def patterns(images: int, seed: int) -> Arrays:
    """Stripes, columns or checkers of 8x8 pixels, under noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(images) % 3
    rows, columns = torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij")
    shapes = torch.stack([rows % 2, columns % 2, (rows + columns) % 2])
    noise = torch.randint(0, 120, (images, 1, 8, 8), generator=generator)
    return Arrays((shapes[labels][:, None] * 130 + noise).to(torch.uint8), labels)


@pytest.fixture
def pattern_data(monkeypatch: pytest.MonkeyPatch) -> ArrayDataset:
    """The patterns, as what every recipe of the test trains on."""
    facts = (("rows", "columns", "checkers"), ((0.5,), (0.3,)))
    data = ArrayDataset("patterns", *facts, train=patterns(150, 0), test=patterns(30, 1), digest="patterns-1")
    monkeypatch.setattr("bagcert.training.loop.load_dataset", lambda name, data_dir, folder: data)
    return data


TABLE: dict[str, dict[str, object]] = {
    "data": {"name": "patterns", "flip": True, "crop_padding": 1},
    "network": {"classes": 3, "channels": 1, "width": 8, "kernels": [1], "paths": 1, "shake": False},
    "loss": {"name": "margin"},
    "optimizer": {"name": "muon"},
    "schedule": {"shape": "linear", "epochs": 3, "warmup_epochs": 0.3},
    "training": {"batch_size": 15},  # 135 images: nine steps an epoch
    "evaluation": {"patch": "1x1", "times": 3},
}


def pattern_recipe(**changes: dict[str, object]) -> Recipe:
    """The small recipe with changed keys, section by section."""
    recipe = read_recipe({section: inner | changes.get(section, {}) for section, inner in TABLE.items()})
    assert isinstance(recipe.loss, MarginLoss) or "loss" in changes
    return recipe


def rival_recipe(network: dict[str, object], loss: str = "cross-entropy", rule: str = "unanimous") -> Recipe:
    """The small recipe for another kind of network."""
    table = {**TABLE, "network": {"classes": 3, "channels": 1, **network}, "loss": {"name": loss}}
    return read_recipe({**table, "optimizer": {"name": "adam"}, "evaluation": {"patch": "1x1", "rule": rule}})


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
