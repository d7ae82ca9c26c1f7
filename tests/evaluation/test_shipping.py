"""Rows that survive a crash, and a run made into a model whose card they prove."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
import torch

import bagcert
from bagcert.data import load_dataset
from bagcert.errors import UsageError
from bagcert.evaluation import rows as rows_module
from bagcert.evaluation.rows import Evaluation, read_rows, write_rows
from bagcert.evaluation.shipping import PATCHES, card_table, evaluations_for, ship
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.saved import load_scorer
from bagcert.training.folder import RunFolder, save_run

DIGITS = load_dataset("digits")
SMALL = ("1x1", "2x2", "1x3")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on 8x8 digits with random weights; patches that fit 8x8."""
    monkeypatch.setattr("bagcert.evaluation.shipping.PATCHES", SMALL)
    torch.manual_seed(0)
    config = ResidualConfig(classes=10, channels=1, width=8, kernels=(3,), paths=1, shake=False)
    scorer = ResidualScorer(config, (8, 8), DIGITS.mean, DIGITS.std)
    facts: dict[str, Any] = {
        "classes": list(DIGITS.classes),
        "data": {"name": "digits", "digest": DIGITS.digest},
        "patch": "2x2",
        "rule": "every-region",
    }
    save_run(RunFolder(tmp_path / "run"), scorer, scorer.state_dict(), facts)
    return tmp_path / "run"


def test_ship_stores_half_precision_and_certifies_all_test_images(run: Path, tmp_path: Path) -> None:
    counted: list[int] = []
    card = ship(run, tmp_path / "model", DIGITS, {"command": "bagcert train digits"}, counted.append)
    test = DIGITS.split("test")
    assert sum(counted) == len(test)
    assert card["command"] == "bagcert train digits"
    assert [(row["patch"], row["rule"]) for row in card["test"]] == [
        (patch, rule) for patch in SMALL for rule in ("largest-region", "every-region", "masked", "two-mask")
    ]
    scorer, saved = load_scorer(tmp_path / "model")
    assert saved == card
    original, _ = load_scorer(run)
    for name, value in scorer.state_dict().items():
        expected = original.state_dict()[name]
        assert torch.equal(value, expected.half().float() if expected.is_floating_point() else expected)

    defense = bagcert.load(tmp_path / "model")
    images = torch.cat([batch.images for batch in test.batches(100, "cpu")])
    rows = read_rows(tmp_path / "model" / "rows.jsonl.gz")
    assert torch.equal(rows.labels, test.labels)
    for entry, stored in rows.results.items():
        fresh = defense.against(entry.patch, entry.rule).certify(images, exact=False)
        assert torch.equal(fresh.predicted, stored.predicted)
        assert torch.equal(fresh.certified, stored.certified)
    own = next(row for row in card["test"] if row["patch"] == "2x2" and row["rule"] == "every-region")
    fresh = defense.certify(images)
    assert own["clean"] == round(float((fresh.predicted == test.labels).double().mean()), 6)
    assert not (tmp_path / "model" / "rows.jsonl").exists()


def test_logits_are_certified_by_two_mask_alone() -> None:
    assert evaluations_for((-(2**20), 2**20)) == [Evaluation(patch, "two-mask") for patch in PATCHES]


def test_other_data_is_refused(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["data"]["digest"] = "0"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="expected the data that the run was trained on, got another digest of digits"):
        ship(run, tmp_path / "model", DIGITS, {}, lambda images: None)


def test_rows_continue_after_a_crash(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "BATCH", 50)
    defense, test = bagcert.load(run), DIGITS.split("test")
    evaluations = [Evaluation("2x2", "every-region"), Evaluation("1x1", "two-mask")]
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    write_rows(whole, defense, evaluations, test, {"model": "a"})
    content = whole.read_text()
    for length in (10, len(content) // 2, len(content) - 3):
        cut.write_text(content[:length])
        if length == 10:  # not even the first line is whole
            with pytest.raises(UsageError, match="expected rows of the same model, data and evaluations"):
                write_rows(cut, defense, evaluations, test, {"model": "a"})
            assert cut.read_text() == content[:length], "a file that is not ours was touched"
            continue
        with pytest.raises(UsageError, match="expected"):
            read_rows(cut)
        counted: list[int] = []
        write_rows(cut, defense, evaluations, test, {"model": "a"}, counted.append)
        assert cut.read_text() == content
        assert counted[0] % 50 == 0 and sum(counted) == len(test)
    write_rows(whole, defense, evaluations, test, {"model": "a"})
    assert whole.read_text() == content, "a finished file was changed"


def test_rows_of_another_model_are_not_overwritten(run: Path, tmp_path: Path) -> None:
    defense, test, path = bagcert.load(run), DIGITS.split("test"), tmp_path / "rows.jsonl"
    write_rows(path, defense, [Evaluation("2x2", "every-region")], test, {"model": "a"})
    content = path.read_text()
    with pytest.raises(UsageError, match=r"expected rows of the same model, data and evaluations in .*, got others"):
        write_rows(path, defense, [Evaluation("1x1", "every-region")], test, {"model": "a"})
    assert path.read_text() == content


def test_broken_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="expected rows of an evaluation in"):
        read_rows(path)
    header = {"images": 2, "evaluations": [{"patch": "1x1", "rule": "two-mask"}]}
    path.write_bytes(gzip.compress((json.dumps(header) + "\n[0,1,[[1,1]]]\n").encode()))
    with pytest.raises(UsageError, match=r"expected 2 rows in .*, got 1; certify to the end"):
        read_rows(path)
    path.write_bytes(gzip.compress((json.dumps(header) + "\n[0,1,[[1,1]]]\n[1,0,[[1,0]]]\n").encode()))
    assert card_table(path) == [{"patch": "1x1", "rule": "two-mask", "clean": 0.5, "certified": 0.5, "answered": 0.5}]
