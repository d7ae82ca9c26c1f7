"""Finished runs: loaded whole, or refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.files import pack_tensors, sha256
from bagcert.scorers import ResidualConfig, ResidualScorer
from bagcert.scorers.base import HandedConfig, NetworkConfig
from bagcert.scorers.covered import CoverConfig
from bagcert.scorers.weights import NETWORKS, load_scorer, outline, read_scorer_table, scorer_table
from bagcert.scorers.wrapped import OwnConfig
from bagcert.training.recipe import Recipe
from bagcert.training.run import RunFolder, save_run

CONFIG = ResidualConfig(classes=3, channels=1, width=(4, 6), kernels=(3,), strides=(2,), paths=1, shake=False)
BUILT = [kind for kind in NETWORKS.values() if not issubclass(kind, HandedConfig)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    scorer = ResidualScorer(CONFIG, (8, 10), mean=(0.3,), std=(0.2,))
    save_run(RunFolder(tmp_path), scorer, scorer.state_dict(), {"seed": 1})
    return tmp_path


def change_card(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    card = json.loads((run / "config.json").read_text())
    change(card)
    (run / "config.json").write_text(json.dumps(card))


def test_a_run_comes_back_in_evaluation_mode(run: Path) -> None:
    torch.manual_seed(0)
    scorer = ResidualScorer(CONFIG, (8, 10), mean=(0.3,), std=(0.2,)).eval()
    loaded = load_scorer(run)[0]
    assert not loaded.training
    assert loaded.config == CONFIG and loaded.footprint.image_size == (8, 10)
    images = torch.rand(2, 1, 8, 10)
    assert torch.equal(loaded.logits(images), scorer.logits(images))


@pytest.mark.slow
def test_scorers_survive_json() -> None:
    own = OwnConfig().handed(torch.nn.Conv2d(3, 10, 3))
    covered = CoverConfig(at_once=2).handed(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 40, 10)).eval()
    )
    for config in (CONFIG, own, covered, *(kind() for kind in BUILT)):
        table = json.loads(json.dumps(scorer_table(config.build((32, 40), (0.0,), (1.0,)))))
        assert read_scorer_table(table) == (config, (32, 40))


def shapes(scorer: torch.nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in scorer.state_dict().items()}


@pytest.mark.parametrize("kind", BUILT)
def test_an_outline_has_the_shapes_of_the_network_and_no_numbers(kind: type[NetworkConfig]) -> None:
    config = kind()
    found = outline(config, (32, 40))
    assert {value.device.type for value in found.parameters()} == {"meta"}
    whole = config.build((32, 40), (0.0,), (1.0,))
    assert shapes(found) == shapes(whole) and found.footprint.grid == whole.footprint.grid


def test_a_wide_network_on_a_card_takes_no_memory(run: Path) -> None:
    change_card(run, lambda card: card["scorer"]["network"].update(width=2**14, kernels=[99]))  # a terabyte
    with pytest.raises(UsageError, match=r"The tensors in .* are not those of the network in config.json"):
        load_scorer(run)


def test_the_first_kind_of_network_has_no_name() -> None:
    """Cards, recipes and checkpoints from before there was a second kind stay what they are."""
    assert "name" not in scorer_table(ResidualScorer(CONFIG, (8, 8)))["network"]
    assert "name" not in Recipe().table()["network"]


def test_every_flipped_byte_of_the_weights_is_noticed(run: Path) -> None:
    content = (run / "weights.safetensors").read_bytes()
    for place in (0, 20, len(content) // 2, len(content) - 1):
        (run / "weights.safetensors").write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(
            UsageError,
            match=r"The weights in .* do not have the SHA-256 in config.json\. Copy the model",
        ):
            load_scorer(run)[0]


def test_weights_of_another_network_are_refused(run: Path) -> None:
    other = ResidualScorer(ResidualConfig(classes=3, channels=1, width=50, kernels=(3,), paths=1, shake=False), (8, 8))
    content = pack_tensors(other.state_dict(), {})
    (run / "weights.safetensors").write_bytes(content)
    change_card(run, lambda card: card.update(weights_sha256=sha256(content)))
    with pytest.raises(UsageError, match=r"The tensors in .* are not those of the network in config.json"):
        load_scorer(run)[0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda card: card.update(format="other"), "The format of .* must be bagcert-run-1, but is 'other'"),
        (lambda card: card.pop("format"), "The format of .* must be bagcert-run-1, but is None"),
        (lambda card: card.pop("scorer"), "The scorer in config.json must have kind, image_size and network"),
        (
            lambda card: card["scorer"].update(kind="dense"),
            "The scorer in config.json must be of kind 'residual' .*, but is 'dense'",
        ),
        (
            lambda card: card["scorer"].update(image_size="big"),
            "The scorer in config.json must be of kind .*, but is .* 'big'",
        ),
        (lambda card: card["scorer"]["network"].update(depth=3), r"Unknown network key 'depth'\. .*Known: "),
        (
            lambda card: card["scorer"]["network"].pop("step"),
            "The network in config.json must have all keys, but lacks step\\.",
        ),
        (lambda card: card["scorer"]["network"].update(paths=9), "The value of network.paths must be 1 or 2, but is 9"),
        (
            lambda card: card["scorer"]["network"].update(name="residul"),
            r"Unknown network 'residul'\. Did you mean 'residual'\? Known: ",
        ),
        (lambda card: card["scorer"].update(network=3), "The value of network must be a table, but is 3"),
        (lambda card: card["scorer"]["network"].update(classes=9), "The tensors in .* are not those of the network"),
    ],
)
def test_foreign_cards_are_refused(run: Path, change: Callable[[dict[str, Any]], object], words: str) -> None:
    change_card(run, change)
    with pytest.raises(UsageError, match=words) as error:
        load_scorer(run)[0]
    assert "\n" not in str(error.value)


def test_folders_that_are_no_finished_run(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^/none holds no finished run with config.json and weights.safetensors\.$"):
        load_scorer(Path("/none"))[0]
    (run / "config.json").write_text("{")
    with pytest.raises(UsageError, match=r"^Cannot read .* as JSON: "):
        load_scorer(run)[0]
    (run / "config.json").unlink()
    (run / "checkpoint.safetensors").write_text("")
    with pytest.raises(UsageError, match=r"Its training is not finished: bagcert train .* --resume"):
        load_scorer(run)[0]
