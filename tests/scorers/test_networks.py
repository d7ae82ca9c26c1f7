"""What all kinds of networks share: they train as one compiled graph, and say what they are."""

import pytest
import torch
from torch import nn

from bagcert.config import write_config
from bagcert.scorers.base import BuiltScorer, HandedConfig, NetworkConfig
from bagcert.scorers.weights import NETWORKS, kind_of, read_network
from bagcert.scorers.wrapped import OwnConfig

SMALL: dict[str, dict[str, object]] = {
    "residual": {"width": 4, "kernels": [3], "shake": False},
    "ensemble": {"width": 4, "kernels": [3], "shake": False, "members": 2},
    "mixed": {"width": [[4, 4], [4, 4]], "kernels": [[3], [1]]},
    "ablation": {"kept": [8, 3], "width": 4, "blocks": [1, 1]},
    "cleanser": {"patch": [2, 2], "masks": 2, "width": 4, "blocks": [1, 1]},
    "interval": {"patch": [2, 2], "widths": [4], "strides": [2], "features": 8, "placements": 3},
    "own": {"step": "sigmoid"},
    "cover": {"masks": 2, "at_once": 4},
}


def small(name: str) -> NetworkConfig:
    return read_network({"name": name, "classes": 3, "channels": 1, **SMALL[name]})


def build(name: str) -> BuiltScorer:
    torch.manual_seed(0)
    config = small(name)
    if isinstance(config, HandedConfig):
        features = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU()
        last = [nn.Conv2d(4, 3, 1)] if name == OwnConfig.name else [nn.Flatten(), nn.Linear(4 * 6 * 6, 3)]
        config = config.handed(nn.Sequential(*features, *last))
    return config.build((8, 8), (0.5,), (0.3,))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_config_survives_its_table(name: str) -> None:
    config = small(name)
    assert kind_of(config) == name
    assert read_network(write_config(config)) == config


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_training_compiles_as_one_graph(name: str) -> None:
    scorer, images = build(name), torch.rand(4, 1, 8, 8)
    scorer.begin_step(0.5)
    results = []
    for forward in (scorer, torch.compile(scorer, fullgraph=True, backend="aot_eager")):
        torch.manual_seed(1)
        scores = forward(images)
        scores.square().mean().backward()
        results.append(
            [scores.detach(), *(weight.grad.clone() for weight in scorer.parameters() if weight.grad is not None)]
        )
        scorer.zero_grad()
    torch.testing.assert_close(results[0], results[1])
    assert len(results[0]) == 1 + len(list(scorer.parameters())), "every weight learns"
