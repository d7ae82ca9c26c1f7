"""What a report is made of: rows of one data set, and images if they are at hand."""

from pathlib import Path
from typing import Any

import pytest

from bagcert.data import ArrayDataset
from bagcert.errors import UsageError
from bagcert.report.inputs import read_inputs, unique
from bagcert.report.page import build, make_report, write_report
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Record
from tests.report.report_rows import attack, certify
from tests.rows.digit_runs import DIGITS, save_digit_run
from tests.rows.forging import make_rows

HEADER: dict[str, Any] = {
    "model": "model",
    "weights_sha256": "ab",
    "data": {"name": "cifar10", "digest": "1"},
    "split": "test",
    "classes": ["a", "b"],
    "footprint": {"image_size": [32, 32], "receptive_field": [5, 5]},
    "scores": {"step": "heaviside", "unit": 1, "bounds": [0, 1]},
    "images": 2,
    "evaluations": [{"patch": "5x5", "rule": "two-mask"}],
}
RECORDS = [Record("5x5", "two-mask", 0, 1, 1, True), Record("5x5", "two-mask", 1, 0, 1, False)]


def test_one_evaluation_makes_no_curve(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl.gz", HEADER, RECORDS)
    inputs = read_inputs([path])
    text = write_report(build(inputs, None), inputs, tmp_path / "out").read_text()
    assert "model is right on 50.00 % of 2 images" in text
    assert "No gallery: no rows here have scores beside them" in text
    assert "Patches: 5x5 pixels (2.44 %) of 32x32" in text and "<figure>" not in text
    assert "--limit 2 --out rows.jsonl" in text


@pytest.mark.parametrize("forged", [{"model": None}, {"data": {}}, {"classes": 2}, {"footprint": {}}, {"split": 3}])
def test_rows_that_do_not_say_what_they_are_of_are_refused(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER | forged, RECORDS)
    with pytest.raises(
        UsageError, match=r"rows.jsonl (is not as bagcert writes|does not name its model, weights, data)"
    ):
        read_inputs([path])


@pytest.mark.parametrize("forged", [{"card": 5}, {"card": {"evil": 1}}, {"versions": 5}])
def test_rows_of_another_hand_are_refused_in_one_line(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER | forged, RECORDS)
    with pytest.raises(UsageError, match=r"^The rows are not as bagcert writes them \(.*\)\. Copy all files again\.$"):
        make_report([path], None, tmp_path / "out")


@pytest.mark.slow
def test_a_gallery_without_images_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certify(save_digit_run(tmp_path / "one"), "one", scores=True, images=20)
    inputs = read_inputs([path])
    other = ArrayDataset("digits", DIGITS.classes, ((0.0,), (1.0,)), DIGITS.train, DIGITS.test, "other")  # type: ignore[attr-defined]
    gallery = "bagcert.report.gallery.stored_dataset"
    with monkeypatch.context() as patch:
        patch.setattr(gallery, lambda *_: other)
        assert "another digest" in build(inputs, None).gallery.missing

    def absent(*_: object) -> None:
        raise UsageError("expected CIFAR-10")

    with monkeypatch.context() as patch:
        patch.setattr(gallery, absent)
        assert build(inputs, None).gallery.missing == "the images are not here: expected CIFAR-10"
    (tmp_path / "one.scores").rename(tmp_path / "gone")
    assert "certify with --scores" in build(inputs, None).gallery.missing


def test_data_sets_are_not_mixed(tmp_path: Path) -> None:
    path = certify(save_digit_run(tmp_path / "one"), "one", scores=False, images=20)
    other = attack(tmp_path / "other.jsonl", read_rows(path), data={"name": "cifar10", "digest": "12345678"})
    with pytest.raises(UsageError, match=r"one data set, but .* is about digits test .* and .* about cifar10 test"):
        read_inputs([path, other])
    split = attack(tmp_path / "split.jsonl", read_rows(path), split="validation")
    with pytest.raises(UsageError, match="A report is about one data set"):
        read_inputs([path, split])
    with pytest.raises(UsageError, match=r"A report needs at least one file of `bagcert certify`\. Add one\."):
        read_inputs([other])
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(UsageError, match=r"text.jsonl has no text.meta.json beside it\. Copy both files\."):
        read_inputs([tmp_path / "text.jsonl"])
    (tmp_path / "note.txt").write_text("hello\n")
    with pytest.raises(UsageError, match=r"note.txt is not a file of rows, NAME.jsonl or packed\. Make one with"):
        read_inputs([tmp_path / "note.txt"])


def test_equal_names_are_told_apart() -> None:
    assert unique(["a/x", "b/x", "c/y"], ["1234567", "89", "0"]) == ["x 123456", "x 89", "y"]
    assert unique(["x", "x"], ["12", "12"]) == ["x 12 #1", "x 12 #2"]
    assert unique(["runs/a/0"], ["1"]) == ["a/0"]


@pytest.mark.slow
def test_a_model_keeps_its_name_through_several_attacks(tmp_path: Path) -> None:
    path = certify(save_digit_run(tmp_path / "one"), "one", scores=False, images=20)
    rows = read_rows(path)
    attacks = [attack(tmp_path / f"{patch}.jsonl", rows, patch=patch) for patch in ("1x1", "2x2")]
    inputs = read_inputs([path, *attacks])
    assert [(name, found.header["patch"]) for name, found in inputs.attacks] == [("one", "1x1"), ("one", "2x2")]
    text = write_report(build(inputs, None), inputs, tmp_path / "out").read_text()
    assert "--out attack-1x1.jsonl" in text and "--out attack-2x2.jsonl" in text
