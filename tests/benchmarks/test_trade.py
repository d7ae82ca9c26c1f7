"""Every defense is timed in one run; ratios, accuracies and docs/speed.md are those of the stored results."""

import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch

from bagcert.files import read_json
from benchmarks import speed
from benchmarks.trade import command
from studies.common.results import RESULTS, ROOT
from studies.rivals.plan import OURS, RIVALS
from studies.rivals.results import Standing, standings
from tests.studies.calling import call


@pytest.fixture(scope="module")
def known() -> dict[str, Standing]:
    return {each.name: each for each in standings(ROOT / RESULTS)}


def test_speeds_are_relative_to_our_base() -> None:
    rows: dict[str, dict[str, Any]] = {
        command.BASE: {"seconds_per_image": 2.0, "rule": "two-mask"},
        "ibp": {"seconds_per_image": 8.0},
    }
    assert command.with_speeds(rows, absolute=False) == {
        command.BASE: {"rule": "two-mask", "of_base": 1.0},
        "ibp": {"of_base": 0.25},
    }
    assert command.with_speeds(rows, absolute=True)["ibp"] == {"images_per_second": 0.12, "of_base": 0.25}


def test_every_defense_can_be_built_by_its_own_rule() -> None:
    device = torch.device("cpu")
    for rival in RIVALS:
        defense = command.defense_of(Standing(rival.name, False, rival.rules), device)
        assert (str(defense.threat), defense.rule.name) == ("5x5", rival.rules[0])
        assert not any(module.training for module in defense.scorer.modules())


@pytest.mark.slow
def test_the_command_goes_on_and_keeps_only_ratios(
    known: dict[str, Standing], cifar10_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(command.IMAGES, "cpu", 1)
    monkeypatch.setattr(command, "LONG", 0.0)
    monkeypatch.setattr(command, "standings", lambda _: [known[name] for name in (command.BASE, "mask-bn")])
    out, calls = tmp_path / "trade.json", []
    row = command.timed_row

    def broken(standing: Standing, images: torch.Tensor, repeats: int) -> dict[str, object]:
        calls.append(standing.name)
        if standing.name == "mask-bn" and len(calls) == 2:
            raise KeyboardInterrupt
        return row(standing, images, repeats)

    monkeypatch.setattr(command, "timed_row", broken)
    words = ("--device", "cpu", "--repeats", "1", "--data-dir", str(cifar10_dir), "--out", str(out))
    assert call(monkeypatch, command.trade, *words) != 0
    assert not out.exists()
    assert call(monkeypatch, command.trade, *words) == 0
    assert calls == [command.BASE, "mask-bn", "mask-bn"] and [path.name for path in tmp_path.iterdir()] == [out.name]
    found = read_json(out)["defenses"]
    assert found[command.BASE]["of_base"] == 1.0 and found["mask-bn"]["of_base"] > 0
    assert "seconds_per_image" not in found["mask-bn"]


@pytest.mark.slow
def test_stored_accuracies_are_those_of_the_rows(known: dict[str, Standing]) -> None:
    for found in speed.stored("trade"):
        rows = found["defenses"]
        assert rows.keys() == {*OURS, *(rival.name for rival in RIVALS)}
        for name, row in rows.items():
            shares = known[name].at(row["rule"])
            assert shares is not None and row["rule"] == known[name].rules[0]
            assert (row["clean"], row["certified"], row["images_certified"]) == (
                shares.clean,
                shares.certified,
                shares.images,
            )


def test_the_page_and_its_figures_are_up_to_date() -> None:
    """Else: python -m benchmarks.speed."""
    text = speed.PAGE.read_text(encoding="utf-8")
    assert speed.filled(text) == text
    for name, (drawn, numbers) in speed.pictures().items():
        stored = (speed.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        assert stored.endswith(numbers)
        words = {unescape(each) for each in re.findall(r"<text[^>]*>([^<]*)</text>", drawn.svg)}
        shown = speed.stored(name)[0]["defenses" if name == "trade" else "curves"]
        assert set(shown) <= words


def test_nothing_stored_is_above_what_is_stated_or_possible() -> None:
    for found in speed.stored("growth"):
        fits = [fit for by in found["curves"].values() for curve in by.values() for fit in curve["fits"].values()]
        assert fits and not any(fit["exceeds"] for fit in fits)
    for found in speed.stored("roofline"):
        for row in found["networks"]:
            assert 0 < row["network_share_of_limit"] <= 1 and 0 < row["rule_share_of_limit"] <= 1
