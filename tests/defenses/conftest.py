"""Every defense of the catalog, trained for real by its own recipe, once: on 8x8 digits and with a small network."""

from collections.abc import Callable
from pathlib import Path

import pytest

from bagcert.data import Batch, load_dataset
from bagcert.training import RunOptions, load_recipe, train
from studies.rivals.catalog import DEFENSES

DIGITS = {
    "data.name": "digits",
    "data.flip": False,
    "data.crop_padding": 0,
    "network.channels": 1,
    "schedule.epochs": 12,
    "schedule.warmup_epochs": 1,
    "training.batch_size": 100,
    "evaluation.patch": "1x1",
    "evaluation.times": 1,
}
FAST = {"optimizer.lr": 0.06, "optimizer.other_lr": 0.01}
RESIDUAL = {**FAST, "network.width": 16, "network.kernels": [1, 1]}  # receptive field 3
CLASSIFIER = {**FAST, "network.width": 16, "network.blocks": [1, 1]}
ABLATION = {**CLASSIFIER, "schedule.epochs": 20}  # one ablation a step
SMALL: dict[str, dict[str, object]] = {
    "bagcert": {**RESIDUAL, "network.paths": 1, "network.shake": False, "optimizer.name": "muon", **FAST},
    "two-mask": RESIDUAL,
    "ds-column": {**ABLATION, "network.kept": [8, 2]},
    "ds-row": {**ABLATION, "network.kept": [2, 8]},
    "ds-block": {**ABLATION, "network.kept": [3, 4]},
    "clipped-bagnet": RESIDUAL,
    "mask-bn": RESIDUAL,
    "mask-ds": {**ABLATION, "network.kept": [8, 2]},
    "ibp": {
        "network.widths": [8, 8],
        "network.strides": [1, 2],
        "network.features": 32,
        "network.patch": [1, 1],
        "network.placements": 3,
        "optimizer.lr": 0.01,
    },
    "patchcleanser": {**CLASSIFIER, "network.patch": [1, 1], "network.masks": 3},
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run folder of a defense, trained when it is first asked for."""
    folders: dict[str, Path] = {}

    def run(name: str) -> Path:
        if name not in folders:
            folder = tmp_path_factory.mktemp("defenses") / name
            values = DIGITS | SMALL[name]
            settings = [
                f"{key}={_toml(values[key])}" for key in sorted(values, key=lambda key: not key.endswith(".name"))
            ]
            train(load_recipe(DEFENSES[name].recipe, settings), RunOptions(out=folder))
            folders[name] = folder
        return folders[name]

    return run


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.fixture(scope="session")
def digits() -> Batch:
    return next(load_dataset("digits").split("test").batches(30, "cpu"))
