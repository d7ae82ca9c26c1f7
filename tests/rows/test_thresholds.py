"""Thresholds for a wanted rate of false alerts: chosen on the validation split, stored on the card, found there."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import bagcert
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.files import read_json, write_json
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.thresholds import (
    Threshold,
    alert_leads,
    at_rate,
    find_threshold,
    read_rate,
    store_threshold,
    threshold_for,
)
from bagcert.rules import TwoMask
from bagcert.stored_models import card
from tests.cli.calling import call
from tests.rows.digit_runs import DIGITS, save_digit_run


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=40), st.fractions(0, Fraction(9, 10), max_denominator=50))
def test_the_smallest_threshold_with_so_few_alerts(leads: list[int], rate: Fraction) -> None:
    found = threshold_for(torch.tensor(leads), rate)

    def alerts(above: int) -> int:
        return sum(lead < -above for lead in leads)

    assert found >= 0 and alerts(found) <= rate * len(leads)
    assert found == 0 or alerts(found - 1) > rate * len(leads)


@pytest.mark.parametrize(("patch", "rule"), [("2x2", "detect"), ("2x2", "two-mask"), ("2*1x1", "detect")])
def test_leads_tell_the_alert_at_every_threshold(tmp_path: Path, patch: str, rule: str) -> None:
    images = next(iter(DIGITS.split("test").batches(96, "cpu"))).images
    defense = bagcert.load(save_digit_run(tmp_path / "run", "logits", bias=0.0)).against(patch, rule)
    scores = defense.scores(images)
    leads = alert_leads(defense, scores)
    for above in (0, 5, 100, 1000):
        found = defense.against(patch, f"{rule}:{above}").certify_integers(scores)
        assert found.alert is not None and torch.equal(found.alert, leads < -above)
        assert found.detectable is not None and torch.equal(found.detectable, leads > above)
    assert bool((leads < 0).any()) and (patch == "2*1x1" or bool((leads > 5).any()))


def test_rates_as_people_write_them() -> None:
    assert (read_rate("1%"), read_rate(" 0.5% "), read_rate("0%")) == (Fraction(1, 100), Fraction(1, 200), Fraction(0))
    for text in ("0.01", "one", "-1%", "100%", "1 %", ""):
        with pytest.raises(UsageError, match=f"Cannot read the rate of false alerts '{text}'. Write a percentage"):
            read_rate(text)


def test_a_card_has_one_threshold_for_each_patch_rule_and_rate(tmp_path: Path) -> None:
    run = save_digit_run(tmp_path / "run")
    first, other = (Threshold("1x1", "detect", rate, 7, "validation", 100) for rate in ("1%", "5%"))
    for found in (first, other, Threshold("1x1", "detect", "1%", 9, "validation", 100)):
        store_threshold(run, found)
    defense = bagcert.load(run).against("1", "detect")  # another way to write 1x1
    assert [find_threshold(defense, rate) for rate in (" 1.0%", "5%", "2%")] == [
        Threshold("1x1", "detect", "1%", 9, "validation", 100),
        other,
        None,
    ]
    assert bagcert.load(run).card["alerts"] == card(run)["alerts"], "the card is still read"


def test_certify_chooses_on_the_validation_split_and_stores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = save_digit_run(tmp_path / "run", "logits", bias=0.0)
    words = ("certify", "run", "--rule", "detect", "--patch", "2x2", "--limit", "60", "--false-alerts", "2%")
    assert call(monkeypatch, *words, "--out", "rows.jsonl") == 0
    assert "An attacker can always provoke an alert." in " ".join(capsys.readouterr().out.split())
    (found,) = card(run)["alerts"]
    assert (found["patch"], found["rule"], found["split"]) == ("2x2", "detect", "validation")
    split = DIGITS.split("validation")
    assert found["images"] == len(split)
    defense = bagcert.load(run).against("2x2", f"detect:{found['above']}")
    alerts = defense.certify(next(iter(split.batches(len(split), "cpu"))).images, exact=False).alert
    assert alerts is not None and 0 < int(alerts.sum()) <= 0.02 * len(split)
    rows = read_rows(Path("rows.jsonl"))
    (entry,) = rows.results
    assert entry == Evaluation("2x2", f"detect:{found['above']}") and found["above"] > 0
    store_threshold(run, Threshold("2x2", "detect", "2%", 3, "validation", 1))
    assert call(monkeypatch, *words, "--out", "again.jsonl") == 0
    assert set(read_rows(Path("again.jsonl")).results) == {Evaluation("2x2", "detect:3")}, "as the card says"


def test_masks_from_a_file_have_thresholds_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside those of other patches, and known by what the file holds."""
    monkeypatch.chdir(tmp_path)
    run = save_digit_run(tmp_path / "run", "logits", bias=0.0)
    for name, row in (("sign", 2), ("other", 3)):
        np.save(f"{name}.npy", np.arange(64).reshape(1, 8, 8) // 8 == row)
    words = ("--rule", "detect", "--false-alerts", "2%")
    export = ("export", "run", *words, "--out", "a.onnx", "--masks")
    assert call(monkeypatch, *export, "sign.npy") == 2
    assert "Run `bagcert certify` with --masks FILE.npy --rule detect" in capsys.readouterr().err
    both = ("--masks", "sign.npy", "--patch", "1x1", "--limit", "20", "--out", "rows.jsonl")
    assert call(monkeypatch, "certify", "run", *words, *both) == 0
    found = {each["patch"]: each["above"] for each in card(run)["alerts"]}
    (sign,) = found.keys() - {"1x1"}
    assert (
        sign.startswith("masks:") and Evaluation(sign, f"detect:{found[sign]}") in read_rows(Path("rows.jsonl")).results
    )
    capsys.readouterr()
    assert call(monkeypatch, *export, "sign.npy") == 0
    assert f"detect:{found[sign]}" in capsys.readouterr().out
    assert call(monkeypatch, *export, "other.npy") == 2


def test_a_defense_takes_the_threshold_of_its_card(tmp_path: Path) -> None:
    run = save_digit_run(tmp_path / "run", "logits", bias=0.0)
    store_threshold(run, Threshold("2x2", "two-mask", "1%", 9, "validation", 100))
    defense = bagcert.load(run).against("2x2", "two-mask")
    assert at_rate(defense, "1%").rule.written == "two-mask:9"
    assert torch.equal(at_rate(defense, "1%").regions.masks(), defense.regions.masks())
    for other, rate in ((defense.against("1x1"), "1%"), (defense, "2%"), (defense.against(rule="detect"), "1%")):
        with pytest.raises(
            UsageError, match=f"The card has no threshold for {rate} false alerts, patch {other.threat}"
        ):
            at_rate(other, rate)
    larger = Defense.build(
        defense.scorer, TwoMask(defense.against("3x3").regions), "2x2", defense.classes, card=defense.card
    )
    with pytest.raises(UsageError, match=r"'two-mask' has other masks than those of 2x2, .* Take defense\.against"):
        at_rate(larger, "1%")
    seen = replace(defense, card={**defense.card, "validation": {"trained_on": True}})
    with pytest.raises(UsageError, match=r"patch 2x2 and rule two-mask\. Give one, as in --rule two-mask:400\."):
        at_rate(seen, "2%")


def test_what_is_attacked_and_exported_has_the_threshold_of_the_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, rows, graph = save_digit_run(tmp_path / "run", "logits", bias=0.0), tmp_path / "a.jsonl", tmp_path / "a.onnx"
    store_threshold(run, Threshold("1x1", "two-mask", "1%", 9, "validation", 100))
    wanted = (str(run), "--rule", "two-mask", "--false-alerts", "1%", "--out")
    assert call(monkeypatch, "attack", *wanted, str(rows), "--limit", "2", "--steps", "1") == 0
    assert read_attack_rows(rows).header["rule"] == "two-mask:9"
    assert call(monkeypatch, "export", *wanted, str(graph)) == 0
    assert ", two-mask:9, " in capsys.readouterr().out


@pytest.mark.parametrize("command", ["predict", "serve", "attack", "export"])
def test_others_than_certify_take_no_other_threshold(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(save_digit_run(tmp_path / "run", "logits", bias=0.0))
    given = {"predict": ("picture.png",), "serve": ("--port", "0"), "attack": (), "export": ("--out", "a.onnx")}
    for rule, told in (
        ("two-mask", "Run `bagcert certify` with --patch '1x1' --rule two-mask --false-alerts 1% first."),
        ("every-region", "Rule 'every-region' raises no alerts. Use detect or two-mask."),
        ("detect:4", "Rule 'detect:4' has a threshold already."),
    ):
        assert call(monkeypatch, command, run, *given[command], "--rule", rule, "--false-alerts", "1%") == 2
        assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--rule", "every-region"), "Rule 'every-region' raises no alerts. Use detect or two-mask."),
        (("--rule", "detect:4"), "Rule 'detect:4' has a threshold already."),
        (("--rule", "two-mask"), "No threshold for 1% false alerts can be chosen on the validation split: the network"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    config = save_digit_run(tmp_path / "run") / "config.json"
    write_json(config, {**read_json(config), "validation": {"trained_on": True}})
    assert call(monkeypatch, "certify", "run", "--limit", "5", "--false-alerts", "1%", *words) == 2
    assert told in capsys.readouterr().err
