"""The study of alerts: shares by hand, thresholds across halves, and a page that says what the results say."""

import json
from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.rows.accuracy import accuracies
from bagcert.stored_models import card
from studies.common.results import ROOT
from studies.common.tables import markdown, place_of
from studies.detection import command
from studies.detection import measure as measuring
from studies.detection.measure import crossed, detection
from tests.rows.digit_runs import DIGITS, save_digit_run


def test_shares_by_hand() -> None:
    leads = torch.tensor([-5, -1, 0, 1, 2, 9])
    right = torch.tensor([True, True, False, True, True, False])
    assert detection(leads, right, torch.ones_like(leads)) == {"alerted": 1 / 6, "clean": 3 / 6, "certified": 1 / 6}


def test_each_half_is_judged_by_the_other() -> None:
    leads = torch.tensor([-1, -10, -2, -20, -3, -30, -4, -40])
    found = crossed(leads, torch.ones(8, dtype=torch.bool), "25%")
    assert found["thresholds"] == [30, 3], "the second of four: one may exceed it"
    assert found["alerted"] == 4 / 8


@pytest.mark.slow
def test_a_model_is_measured_by_its_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (measuring, command):
        monkeypatch.setattr(module, "PATCHES", ("1x1", "2x2"))
        monkeypatch.setattr(module, "THREATS", ("1x1", "2x2", "2*1x1"))
    run = save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.0)
    command.measure("run", images=100, out=Path("results/run.json"))
    threats = json.loads(Path("results/run.json").read_text())["patches"]
    found, two = threats["2x2"], threats["2*1x1"]
    batch = next(iter(DIGITS.split("test").batches(100, "cpu")))
    defense = bagcert.load(run)
    detect = accuracies(defense.against("2x2", "detect").certify(batch.images), batch.labels, detection=True)
    pairs = accuracies(defense.against("2x2", "two-mask").certify(batch.images), batch.labels)
    assert found["t=0"] == {"alerted": detect.alerted, "clean": detect.clean, "certified": detect.certified}
    assert found["recovery"] == {"clean": pairs.clean, "certified": pairs.certified}
    detect = accuracies(defense.against("2*1x1", "detect").certify(batch.images), batch.labels, detection=True)
    assert two["t=0"] == {"alerted": detect.alerted, "clean": detect.clean, "certified": detect.certified}
    assert "recovery" not in two
    at_card = defense.against("2x2", f"detect:{found['1%']['card']}").certify(batch.images)
    assert at_card.alert is not None and int(at_card.alert.sum()) <= 1
    monkeypatch.setattr(command, "shipped_models", lambda: {"run": run})
    monkeypatch.setattr(command, "ALL", 100)
    command.cards(Path("results"))
    assert len(card(run)["alerts"]) == 10
    assert {(each["split"], each["images"]) for each in card(run)["alerts"]} == {("test", 100)}


def test_the_page_says_what_the_results_say() -> None:
    page = command.PAGE.read_text(encoding="utf-8")
    folder = ROOT / command.FOLDER
    for name, make in command.TABLES.items():
        assert place_of(name).findall(page) == [markdown(make(folder))] and len(make(folder)) > 1


def test_the_results_are_of_the_shipped_weights_and_their_recovery_is_the_published_one() -> None:
    results = command.results(ROOT / command.FOLDER)
    assert sum(result["images"] == command.ALL for _, result in results) >= 2
    for model, result in results:
        shipped = card(model)
        assert result["weights_sha256"] == shipped["weights_sha256"]
        if result["images"] != command.ALL:
            continue  # no threshold of some images is on a card
        published = {row["patch"]: row for row in shipped["test"] if row["rule"] == "two-mask"}
        for patch, found in result["patches"].items():
            for key in ("clean", "certified") if patch in published else ():
                assert abs(found["recovery"][key] - published[patch][key]) < 5e-4, "another program, the same network"
            thresholds = {
                (each["rule"], each["false_alerts"]): each["above"]
                for each in shipped["alerts"]
                if each["patch"] == patch
            }
            assert thresholds == {
                **{("detect", rate): found[rate]["card"] for rate in measuring.RATES},
                **{("two-mask", rate): above for rate, above in found.get("two-mask", {}).items()},
            }
