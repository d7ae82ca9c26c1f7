"""A pair of networks with different footprints goes through every command as any other model does."""

from pathlib import Path

import pytest
import torch

from bagcert.defense import load
from bagcert.rows.verify.check import verify_rows
from bagcert.scorers.mixed import MixedConfig, MixedScorer
from bagcert.scorers.residual import ResidualScorer
from bagcert.training.run import RunFolder, save_run
from tests.contracts.test_toys import Bench
from tests.rows.digit_runs import DIGITS
from tests.rows.forging import edit_meta


def save_mixed_run(folder: Path) -> Path:
    """Random weights, with logits shifted so that some images are certified."""
    torch.manual_seed(0)
    config = MixedConfig(10, 1, width=((8, 8), (8, 8)), kernels=((3,), (1,)), mirrored=True)
    scorer = MixedScorer(config, (8, 8), DIGITS.mean, DIGITS.std).eval()
    with torch.no_grad():
        for part in scorer.parts:
            assert isinstance(part, ResidualScorer) and part.head.bias is not None
            part.head.bias.copy_(torch.linspace(-0.15, 0.15, 10))
    facts = {
        "classes": list(DIGITS.classes),
        "data": {"name": "digits", "digest": DIGITS.digest},
        "patch": "1x1",
        "rule": "two-mask",
    }
    save_run(RunFolder(folder), scorer, scorer.state_dict(), facts)
    return folder


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    return Bench(save_mixed_run(tmp_path / "run"), monkeypatch, capsys)


@pytest.mark.slow
def test_a_mixed_pair_goes_through_every_command(pair: Bench) -> None:
    assert 0 < int(pair.certified(rule="two-mask").sum()) < len(pair.certified(rule="two-mask"))
    assert load(pair.run).scorer.footprint.grid == (16, 8)
    pair.certify("--patch", "1x1", "--patch", "2x1,1x2", "--rule", "two-mask")
    assert "at most 5x5 pixels by the layers of its own map, one of 2" in pair.verify()
    assert "two-mask" in pair.report()
    pair.attack("--rule", "two-mask")
    pair.export("2x1,1x2", "two-mask")
    assert '"passed": true' in pair.call("audit", str(pair.run), "--json")
    assert "unanimous" in pair.refused("certify", str(pair.run), "--rule", "unanimous")


def test_rows_with_the_fields_of_other_maps_are_found(pair: Bench) -> None:
    pair.certify("--rule", "two-mask")
    edit_meta(pair.rows, lambda meta: meta["footprint"]["maps"].reverse())
    assert any("two-mask: lead" in problem.words for problem in verify_rows(pair.rows).problems)
