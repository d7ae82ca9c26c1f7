"""Training that does not fit into memory is refused before its first step, with a setting that fits."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bagcert.data import ArrayDataset
from bagcert.errors import UsageError
from bagcert.scorers.residual import ResidualConfig
from bagcert.training import RunOptions, train
from bagcert.training.losses import MarginLoss
from bagcert.training.memory import Demand, free_memory, measure, rounded_down
from bagcert.training.recipe import Recipe, load_recipe, resolve
from bagcert.training.trainer import Objective, Trainer
from tests.training.conftest import pattern_recipe

DEMAND = Demand(fixed=1000, trained=100, evaluated=10)
RECIPE = load_recipe("folder-32", ["training.batch_size=500", "evaluation.batch_size=500"])


def with_settings(recipe: Recipe, message: str) -> Recipe:
    """The recipe with the settings that an error names."""
    return resolve(recipe.table(), re.findall(r"--set ([\w.]+=\d+)", message))


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("free", [1300, 3000, 9999, 20_000])
def test_what_an_error_names_fits(free: int, processes: int) -> None:
    with pytest.raises(UsageError, match=r"^This needs about .* GB, but .* GB are free\. Add --set ") as error:
        DEMAND.check(replace(RECIPE, training=replace(RECIPE.training, batch_size=4000)), free, processes)
    fitting = with_settings(RECIPE, str(error.value))
    DEMAND.check(fitting, free, processes)
    assert fitting.training.batch_size % processes == 0


def test_only_what_does_not_fit_is_named() -> None:
    with pytest.raises(UsageError) as error:
        DEMAND.check(RECIPE, 10_000)
    assert "training.batch_size=81." in str(error.value) and "evaluation" not in str(error.value)
    DEMAND.check(RECIPE, 51_000)
    with pytest.raises(UsageError, match=r"Not even two pictures fit: set a smaller data\.crop or network\.width"):
        DEMAND.check(RECIPE, 1199)


@pytest.mark.parametrize(("number", "round_one"), [(1, 1), (10, 9), (90, 81), (1234, 1100), (99_999, 89_000)])
def test_round_numbers(number: int, round_one: int) -> None:
    assert rounded_down(number) == round_one


def test_a_step_keeps_what_its_layers_keep() -> None:
    """One layer after the other, by hand: what autograd saves of a chain without a block's branches."""
    dataset = ArrayDataset.__new__(ArrayDataset)
    dataset.channels, dataset.image_size, dataset.classes = 1, (6, 6), ("a", "b")
    config = ResidualConfig(classes=2, channels=1, width=4, kernels=(1,), paths=1, shake=False, step="logits")
    scorer = config.build((6, 6), (0.0,), (1.0,))
    demand = measure(Objective(scorer, MarginLoss()), scorer, dataset, torch.device("cpu"))
    wide, narrow = 4 * 36 * 4, 36 * 4  # bytes per image of 4 features, of 1
    # Inputs of five convolutions (the block's input is its shortcut too), of three norms, results of ReLUs, the scores.
    assert 8 * wide <= demand.trained <= 8 * wide + 3 * wide + 40 * narrow
    before = {name: value.clone() for name, value in scorer.state_dict().items()}
    measure(Objective(scorer, MarginLoss()), scorer, dataset, torch.device("cpu"))
    assert all(torch.equal(value, before[name]) for name, value in scorer.state_dict().items()), "nothing has changed"


def test_no_step_is_taken_if_it_does_not_fit(
    pattern_data: ArrayDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "step", lambda *arguments: pytest.fail("a step was taken"))
    monkeypatch.setattr("bagcert.training.loop.free_memory", lambda device: 4 * 10**8 + 2**17)
    recipe = pattern_recipe(training={"batch_size": 90})
    with pytest.raises(UsageError, match=r"^This needs about 0\.\d GB, but 0\.4 GB are free\. Add --set ") as error:
        train(recipe, RunOptions(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    with_settings(recipe, str(error.value))


def test_a_wide_network_is_refused_before_it_is_built(
    pattern_data: ArrayDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ResidualConfig, "build", counted := Counted(ResidualConfig.build))
    wide = pattern_recipe(network={"width": 2**14, "kernels": [99]})
    with pytest.raises(UsageError, match=r"The weights of this network need about [\d,.]+ GB in training, but .* free"):
        train(wide, RunOptions(tmp_path / "run"))
    assert counted.devices == ["meta"]


class Counted:
    """`ResidualConfig.build`, and on which devices it was called."""

    def __init__(self, build: object) -> None:
        self.build, self.devices = build, list[str]()

    def __get__(self, config: object, kind: type) -> object:
        def call(*arguments: object, **named: object) -> object:
            self.devices.append(torch.empty(0).device.type)
            return self.build(config, *arguments, **named)  # type: ignore[operator]

        return call


def test_there_is_some_memory() -> None:
    free = free_memory(torch.device("cpu"))
    assert free is None or free > 10**6


def test_the_smallest_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's, or that of its container, where files that are only cached take no room."""
    monkeypatch.setattr("bagcert.training.memory.MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr("bagcert.training.memory.CONTAINER", tmp_path)
    assert free_memory(torch.device("cpu")) is None
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    assert free_memory(torch.device("cpu")) == 5000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("3000000\n")
    assert free_memory(torch.device("cpu")) == 5000 * 1024
    (tmp_path / "memory.max").write_text("4000000\n")
    assert free_memory(torch.device("cpu")) == 1_000_000
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 2000000\nactive_file 7\n")
    assert free_memory(torch.device("cpu")) == 3_000_000
