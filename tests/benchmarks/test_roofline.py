"""Counts come out of the layers and agree with formulas written by hand; nothing may be faster than its limit."""

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import bagcert
from bagcert.files import read_json
from bagcert.rules import find_rule, read_scores
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import outline
from bagcert.threats import Footprint, parse_threat
from benchmarks.roofline import ceilings, command
from benchmarks.roofline.counting import Step, by_kind, operations, steps_of
from tests.studies.calling import call


def by_hand(width: int, positions: int = 32 * 32, classes: int = 10) -> dict[str, int]:
    """Multiply-adds of the paper's network of field 7: a stem, blocks of two paths of which two have 3x3 kernels."""
    large, small = 9 * width * width, width * width
    stem, head = 27 * width, classes * width
    return {"3x3": positions * (stem + 2 * 2 * large), "1x1": positions * (2 * 2 * small + 6 * 4 * small + head)}


def test_the_paper_s_network_is_counted_as_by_hand() -> None:
    """On shapes alone, so that its 38 million weights take no memory."""
    scorer = outline(ResidualConfig(), (32, 32)).eval()
    with steps_of(scorer) as steps:
        scorer.logits(torch.empty(1, 3, 32, 32, device="meta"))
    found = {kind: sum(step.multiply_adds for step in chosen) for kind, chosen in by_kind(steps).items()}
    assert found == by_hand(768)
    assert sum(parameter.numel() for parameter in scorer.parameters()) == 37_827_850
    assert round(sum(step.flops for step in steps) / 1e9, 1) == 77.4


@pytest.mark.parametrize("model", ["cifar10", "cifar10-small"])
def test_shipped_models_agree_with_torch_s_own_counter(model: str) -> None:
    defense = bagcert.load(model)
    image = torch.zeros(1, 3, 32, 32)
    with FlopCounterMode(display=False) as counter, steps_of(defense.scorer) as steps, torch.no_grad():
        defense.scorer.logits(image)
    # Features of positions are made once for a batch, so no image pays for them.
    once = sum(
        2 * part.numel() * 32**2 for name, part in defense.scorer.named_parameters() if "position_matrix" in name
    )
    assert sum(step.flops for step in steps) == counter.get_total_flops() - once > 0


def test_layers_read_and_write_once_and_hooks_go_away() -> None:
    network = nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, groups=1, bias=False), nn.Flatten(), nn.Linear(3, 5))
    with steps_of(network) as steps:
        network(torch.zeros(1, 2, 3, 3))
    network(torch.zeros(1, 2, 3, 3))
    assert steps == [Step("3x3", 3 * 18, 18 + 54 + 3), Step("other", 15, 3 + 15 + 5)]


def test_the_least_time_is_that_of_the_slower_resource() -> None:
    step = Step("1x1", multiply_adds=50, values=30)
    assert step.seconds(100, 1000) == 1.0 and step.seconds(1000, 10) == 3.0


def test_operations_are_counted_and_views_are_free() -> None:
    values = torch.ones(4, 5)
    assert operations(lambda: values + 1) == 20
    assert operations(lambda: values.sum(dim=1)) == 20
    assert operations(lambda: values.view(20).expand(3, 20)[1:]) == 0
    assert operations(lambda: values.cumsum(dim=0)[1:] - 1) == 20 + 15


def test_the_operations_of_a_rule_grow_with_its_formula() -> None:
    regions = Footprint.centered(3, 1, (12, 12), (12, 12)).regions(parse_threat("2x2", (12, 12))).maximal()
    rule = find_rule("every-region")
    one, two = (
        operations(lambda count=count: rule.certify(read_scores(torch.ones(count, 3, 12, 12).int()), regions, False))  # type: ignore[misc]
        for count in (4, 8)
    )
    assert one >= 4 * 3 * (144 + len(regions)) and 1.5 < two / one <= 2


def test_the_command_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ceilings.BYTES, "cpu", 2**16)
    monkeypatch.setattr(command, "RULE_IMAGES", 1)
    monkeypatch.setattr(command, "impossible", lambda rows: [])  # a ceiling this small is none
    out = tmp_path / "roofline.json"
    words = [
        "--images",
        "1",
        "--width",
        "8",
        "--side",
        "16",
        "--repeats",
        "1",
        "--out",
        str(out),
        "--model",
        command.PAPER,
    ]
    assert call(monkeypatch, command.roofline, "--device", "cpu", *words) == 0
    found = read_json(out)
    (row,) = found["networks"]
    assert "ceilings" not in found and not any(key.endswith("_seconds") for key in row)
    assert found["paper_width"] == 8 and row["network_share_of_limit"] > 0 and row["rule_mb_per_image"] == 0.041
    assert row["network_gflop_per_image"] == round(2 * sum(by_hand(8).values()) / 1e9, 4)


def test_what_is_faster_than_its_limit_is_told() -> None:
    row = {"network": "cifar10", "network_share_of_limit": 1.04, "rule_share_of_limit": 0.01}
    assert command.impossible([row]) == ["network of cifar10: 1.04"]
    assert command.impossible([{**row, "network_share_of_limit": 1.0}]) == []


def test_an_unknown_type_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, command.roofline, "--device", "cpu", "--dtype", "float23") == 2
    assert "Unknown dtype 'float23'." in capsys.readouterr().err
