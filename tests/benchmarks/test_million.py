from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch

import bagcert
from bagcert.errors import UsageError
from benchmarks.million import plan
from benchmarks.million import sitting as sittings
from benchmarks.million.plan import CHEAP, CONTROL, DESCENTS, SLICES, Unit, all_units
from benchmarks.million.sitting import Sitting, run, run_unit, stored
from benchmarks.million.world import World
from tests.rows.digit_runs import save_digit_run


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of one model on the digits, one patch and two rules."""
    folder = save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.2)
    alerts = [{"patch": "2x2", "rule": "detect", "false_alerts": "1%", "above": 60}]
    facts = {"test": [{"rule": "two-mask"}], "alerts": alerts, "weights_sha256": "of the run"}
    monkeypatch.setattr(plan, "PATCHES", ("2x2",))
    monkeypatch.setattr(plan, "ATTACKS", {"run": {DESCENTS: 30, CHEAP: 200}})
    monkeypatch.setattr(sittings, "shipped_models", lambda: {"run": folder})
    for module in (plan, sittings):
        monkeypatch.setattr(module, "card", lambda _: facts)
    for kind, count in {DESCENTS: 8, CHEAP: 40, CONTROL: 24}.items():
        monkeypatch.setitem(plan.EACH, kind, count)
    load = bagcert.load
    monkeypatch.setattr(bagcert, "load", lambda _, device: load(folder, device))


def sitting(folder: Path) -> Sitting:
    return Sitting(folder, torch.device("cpu"), steps=8, share=1.0, images=110)


def test_the_plan_has_what_a_million_needs() -> None:
    units = all_units(["cifar10", "cifar10-small", "cifar10-votes"])
    assert len({unit.name for unit in units}) == len({unit.seed for unit in units}) == len(units)

    def attacks(kind: str, model: str = "") -> int:
        return plan.EACH[kind] * sum(unit.kind == kind and unit.case.model.startswith(model) for unit in units)

    assert attacks(DESCENTS) >= 50_000 and attacks(CHEAP) >= 950_000
    assert sum(unit.kind == DESCENTS and unit.case.model == "cifar10" for unit in units) * plan.EACH[DESCENTS] >= 10_000
    rules = {unit.case.rule.partition(":")[0] for unit in units if unit.case.model == "cifar10-votes"}
    assert rules == {"largest-region", "every-region", "masked", "two-mask", "detect"}
    sizes = [sum(unit.slice == number for unit in units) for number in range(SLICES)]
    assert max(sizes) - min(sizes) <= 0.1 * max(sizes)


@pytest.mark.usefixtures("small")
def test_what_was_interrupted_goes_on_to_the_same_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(sitting(tmp_path / "whole"), range(SLICES), 60)
    assert whole["broken"] == [] and whole["units_left"] == 0
    assert whole[DESCENTS]["pictures"] >= 30 and whole[CHEAP]["pictures"] >= 200
    assert whole["verdicts"] >= whole["pictures"], "the other rule may answer as well"
    for case in whole["cases"]:
        assert case["changed"]["descent"] > 0, "the same attack wins where nothing is proven"

    def interrupted(each: Sitting, unit: Unit) -> dict[str, Any]:
        if len(stored(each)) == 9:
            raise KeyboardInterrupt
        return run_unit(each, unit)

    monkeypatch.setattr(sittings, "run_unit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(sitting(tmp_path / "parts"), range(SLICES), 60)
    (torn,) = (tmp_path / "parts").glob("units-*.jsonl")
    torn.write_text(torn.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    monkeypatch.setattr(sittings, "run_unit", run_unit)
    for path in (tmp_path / "parts").glob("won-*"):  # they are made again
        path.unlink()
    for part in range(SLICES):
        last = run(sitting(tmp_path / "parts"), [part], 60)
    assert last == whole
    with pytest.raises(UsageError, match="Unknown model 'misspelt'"):
        run(sitting(tmp_path / "parts"), range(SLICES), 60, only=["misspelt"])
    other = replace(sitting(tmp_path / "parts"), steps=9)
    with pytest.raises(UsageError, match="holds units of other steps or another share"):
        run(other, [0], 60)


@pytest.mark.usefixtures("small")
def test_a_proof_that_does_not_hold_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lie = cached_property(lambda world: torch.ones_like(world.predicted, dtype=torch.bool))
    lie.__set_name__(World, "proven")
    monkeypatch.setattr(World, "proven", lie)
    assert run(sitting(tmp_path / "store"), range(SLICES), 60)["broken"]
