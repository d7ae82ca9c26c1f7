"""A run made into a model whose card is proven by its rows."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import bagcert
from bagcert.errors import UsageError
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.rows.shipping import PATCHES, evaluations_for, ship
from bagcert.rows.write import Plan, write_rows
from bagcert.scorers.footprint_table import read_footprint
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.weights import load_scorer, restored, rounded
from bagcert.training.run import RunFolder, save_run
from tests.rows.digit_runs import DIGITS, SMALL, save_view_run

CPU = torch.device("cpu")


@pytest.fixture
def small_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagcert.rows.shipping.PATCHES", SMALL)


@pytest.mark.usefixtures("small_patches")
def test_ship_stores_rounded_weights_and_certifies_all_test_images(run: Path, tmp_path: Path) -> None:
    counted: list[int] = []
    card = ship(run, tmp_path / "model", DIGITS, CPU, {"command": "bagcert train digits"}, counted.append)
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
    described = defense.program.describe()
    assert {key: rows.header[key] for key in described} == described
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
    own = Evaluation("1x1", "two-mask")
    assert evaluations_for(scorer, own) == [Evaluation(patch, "two-mask") for patch in ("1x1", "2x2", "5x5", "8x8")]
    assert [entry.rule for entry in evaluations_for(scorer, replace(own, rule="masked"))][:2] == ["masked", "two-mask"]
    large = ResidualScorer(ResidualConfig(width=2, kernels=(1,), step="logits"), (32, 32))
    own = Evaluation("5x5", "two-mask")
    assert evaluations_for(large, own) == [Evaluation(patch, "two-mask") for patch in PATCHES]


@pytest.mark.usefixtures("small_patches")
def test_a_folder_of_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    scorer, facts = load_scorer(run)
    doubled = {name: value * 2 for name, value in scorer.state_dict().items()}
    save_run(RunFolder(other), scorer, doubled, {key: facts[key] for key in ("classes", "data", "patch", "rule")})
    for wrong in (other, run):  # a run is no folder that something was shipped to, not even itself
        before = {path.name: path.read_bytes() for path in wrong.iterdir() if path.is_file()}
        with pytest.raises(
            UsageError, match=f"{wrong.name} is neither empty nor a folder that this run was shipped to"
        ):
            ship(run, wrong, DIGITS, CPU, {}, lambda images: None)
        assert {path.name: path.read_bytes() for path in wrong.iterdir() if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.usefixtures("small_patches")
def test_views_are_certified_by_their_own_rule(tmp_path: Path) -> None:
    run = save_view_run(tmp_path / "run")
    card = ship(run, tmp_path / "model", DIGITS, CPU, {}, lambda images: None)
    assert [(row["patch"], row["rule"]) for row in card["test"]] == [(patch, "unanimous") for patch in SMALL]
    defense, test = bagcert.load(tmp_path / "model"), DIGITS.split("test")
    images = next(iter(test.batches(60, "cpu"))).images
    rows = read_rows(tmp_path / "model" / "rows.jsonl.gz")
    for entry, stored in rows.results.items():
        fresh = defense.against(entry.patch).certify(images)
        assert torch.equal(fresh.certified, stored.certified[:60])
    assert len({int(stored.certified.sum()) for stored in rows.results.values()}) == len(SMALL), "or it says little"
    assert rows.header["footprint"] == {"image_size": [8, 8], "receptive_field": [8, 8]}, "views depend on the patch"


def test_rows_of_one_patch_have_the_views_that_hide_it(tmp_path: Path) -> None:
    defense = bagcert.load(save_view_run(tmp_path / "run"))
    about = describe("views", defense, DIGITS, "test")
    write_rows(tmp_path / "rows", defense, Plan([Evaluation("3x3", "unanimous")], 4), DIGITS.split("test"), about)
    header = read_rows(tmp_path / "rows").header
    assert header["footprint"] != about["footprint"]
    expected = defense.against("3x3").scorer.footprint.branches
    for found, wanted in zip(read_footprint(header["footprint"]).branches, expected, strict=True):
        assert torch.equal(found.rows, wanted.rows) and torch.equal(found.columns, wanted.columns)


@pytest.mark.usefixtures("small_patches")
def test_other_data_is_refused(run: Path, tmp_path: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["data"]["digest"] = "0"
    (run / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="The run was trained on other data: the digest of digits differs"):
        ship(run, tmp_path / "model", DIGITS, CPU, {}, lambda images: None)
