"""A run made into a model whose card is proven by its rows."""

import json
from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.errors import UsageError
from bagcert.evaluation.rows import Evaluation, read_rows
from bagcert.evaluation.shipping import PATCHES, evaluations_for, ship
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.saved import load_scorer
from bagcert.scorers.stored import restored, rounded
from tests.evaluation.digit_runs import DIGITS, SMALL, save_view_run


@pytest.fixture
def small_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.evaluation.shipping.PATCHES", SMALL)


@pytest.mark.usefixtures("small_patches")
def test_ship_stores_rounded_weights_and_certifies_all_test_images(run: Path, tmp_path: Path) -> None:
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
    expected = restored(rounded(original.state_dict()))
    for name, value in scorer.state_dict().items():
        assert torch.equal(value, expected[name].float() if value.is_floating_point() else expected[name])

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
    scorer = ResidualScorer(ResidualConfig(width=2, kernels=(1,), step="logits"), (8, 8))
    assert evaluations_for(scorer, "two-mask") == [Evaluation(patch, "two-mask") for patch in PATCHES]
    assert [entry.rule for entry in evaluations_for(scorer, "masked")][:2] == ["masked", "two-mask"]


def test_patches_that_do_not_fit_are_refused_before_anything_is_written(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected a patch"):
        ship(run, tmp_path / "model", DIGITS, {}, lambda images: None)
    assert not (tmp_path / "model").exists()


@pytest.mark.usefixtures("small_patches")
def test_views_are_certified_by_their_own_rule(tmp_path: Path) -> None:
    run = save_view_run(tmp_path / "run")
    card = ship(run, tmp_path / "model", DIGITS, {}, lambda images: None)
    assert [(row["patch"], row["rule"]) for row in card["test"]] == [(patch, "unanimous") for patch in SMALL]
    defense, test = bagcert.load(tmp_path / "model"), DIGITS.split("test")
    images = next(iter(test.batches(60, "cpu"))).images
    rows = read_rows(tmp_path / "model" / "rows.jsonl.gz")
    for entry, stored in rows.results.items():
        fresh = defense.against(entry.patch).certify(images)
        assert torch.equal(fresh.certified, stored.certified[:60])
    assert len({int(stored.certified.sum()) for stored in rows.results.values()}) == len(SMALL), "or it says little"


@pytest.mark.usefixtures("small_patches")
def test_other_data_is_refused(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["data"]["digest"] = "0"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="expected the data that the run was trained on, got another digest of digits"):
        ship(run, tmp_path / "model", DIGITS, {}, lambda images: None)
