"""Rows with alerts in a report: the four outcomes, the curve, and no table that mixes answers with alerts."""

from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.report.detection import alert_table, curve
from bagcert.report.inputs import read_inputs
from bagcert.report.page import build, write_report
from bagcert.report.tables import accuracy_table
from bagcert.rows.accuracy import accuracies
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.rows.write import Plan, write_rows
from bagcert.rules import Certificate
from tests.report.report_rows import FACTS
from tests.rows.digit_runs import DIGITS, save_digit_run

WARNING = "An attacker can always provoke an alert."


def rows_of(tmp_path: Path, rules: tuple[str, ...], scores: bool) -> Path:
    defense = bagcert.load(save_digit_run(tmp_path / "run", "logits", "two-mask", bias=0.0))
    path = tmp_path / "rows.jsonl"
    plan = Plan([Evaluation("2x2", rule) for rule in rules], 80, scores)
    write_rows(path, defense, plan, DIGITS.split("test"), {**describe("run", defense, DIGITS, "test"), **FACTS})
    return path


@pytest.mark.parametrize("scores", [True, False])
def test_a_page_tells_answers_and_alerts_apart(tmp_path: Path, scores: bool) -> None:
    inputs = read_inputs([rows_of(tmp_path, ("two-mask", "two-mask:50", "detect", "detect:50"), scores)])
    assert [line[2] for line in accuracy_table(inputs).rows] == ["two-mask", "two-mask:50"]
    table = alert_table(inputs)
    assert [line[2] for line in table.rows] == ["two-mask:50", "detect", "detect:50"] and WARNING in table.note
    for line in table.rows:
        assert sum(float(cell) for cell in line[5:9]) == pytest.approx(100, abs=0.03), "four outcomes, each image once"
    page = write_report(build(inputs, None), inputs, tmp_path / "page").read_text(encoding="utf-8")
    assert "Abstain or alert" in page and WARNING in page and "Certified detection against false alerts" in page
    assert "it is proven that no 2x2 patch, anywhere, can change that (rule two-mask)" in page


def test_a_page_of_alerts_alone_promises_no_more(tmp_path: Path) -> None:
    inputs = read_inputs([rows_of(tmp_path, ("detect",), scores=True)])
    page = write_report(build(inputs, None), inputs, tmp_path / "page").read_text(encoding="utf-8")
    assert "the answer stays right or an alert is raised (rule detect). " + WARNING in page
    assert "can change that" not in page and "Abstain unless certified" not in page


def test_the_curve_of_stored_leads_goes_through_every_threshold(tmp_path: Path) -> None:
    inputs = read_inputs([rows_of(tmp_path, ("detect", "detect:20", "detect:50"), scores=True)])
    rows = inputs.alerting["run"]
    whole = curve(rows, Evaluation("2x2", "detect"))
    assert whole == curve(rows, Evaluation("2x2", "detect:50")), "a lead counts from its threshold"
    assert whole[0][0] > 0 == whole[-1][0]
    shares = rows.accuracies(Evaluation("2x2", "detect"))
    assert shares.alerted is not None and whole[0] == (100 * shares.alerted, 100 * shares.certified)
    assert len(set(whole)) > 3


def test_detection_counts_an_alert_as_an_error_and_recovery_does_not() -> None:
    certificate = Certificate(
        torch.tensor([0, 1, 2, 3, 4]),
        torch.tensor([True, False, False, False, False]),
        alert=torch.tensor([False, False, True, False, False]),
        detectable=torch.tensor([False, True, False, False, True]),
    )
    labels = torch.tensor([0, 1, 2, 3, 0])
    found = accuracies(certificate, labels)
    assert (found.clean, found.certified, found.answered, found.alerted) == (0.8, 0.2, 0.2, 0.2)
    found = accuracies(certificate, labels, detection=True)
    assert (found.clean, found.certified, found.answered, found.alerted) == (0.6, 0.4, 0.6, 0.2)
