"""Rows that anyone can read, and readers that believe nothing."""

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

import bagcert
from bagcert.errors import UsageError
from bagcert.files import pack, sha256
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation, meta_path, read_meta
from bagcert.rows.resume import resume
from bagcert.rows.shipping import card_table
from bagcert.rows.verify.check import verify_rows
from bagcert.rows.write import Plan, write_rows
from tests.rows.digit_runs import DIGITS
from tests.rows.forging import edit_meta, lines_of, make_rows, unfinish, write_lines

TEST = DIGITS.split("test")
TWO = [Evaluation("1x2", "every-region"), Evaluation("1x1", "two-mask")]
FACTS: dict[str, Any] = {"model": "a", "classes": list(DIGITS.classes), "footprint": {"grid": [8, 8]}}
HEADER: dict[str, Any] = {"model": "m", "images": 2, "evaluations": [{"patch": "1x1", "rule": "two-mask"}]}
ANSWER = {"patch": "1x1", "rule": "two-mask", "label": 1, "predicted": 1, "certified": True}
FIRST, SECOND = {**ANSWER, "image": 0}, {**ANSWER, "image": 1, "label": 0, "certified": False}
DETAILS = {
    "lead": 3,
    "weakest_class": 0,
    "weakest_placement": [0, 0, 1, 1],
    "second_placement": None,
    "certified_square": 1,
    "scores_sha256": "89abcdef" * 2,
}


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.jsonl.xz"])
def test_readers_ignore_fields_that_they_do_not_know(tmp_path: Path, name: str) -> None:
    more = {"alert": False, "detectable": [1, 2]}
    path = make_rows(tmp_path / name, {**HEADER, "later": {"a": 1}}, [{**more, **FIRST}, {**SECOND, **more}])
    expected = {"patch": "1x1", "rule": "two-mask", "clean": 0.5, "certified": 0.5, "answered": 0.5}
    assert card_table(path) == [expected]
    assert read_rows(path).header["later"] == {"a": 1} and read_rows(path).model == "m"


def test_every_line_is_an_object_that_needs_no_explanation(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, bagcert.load(run), Plan(TWO, 3), TEST, FACTS)
    first = bagcert.load(run).against("1x2").certify(next(TEST.batches(1, "cpu")).images)
    assert lines_of(path)[0] == {
        "patch": "1x2",
        "rule": "every-region",
        "image": 0,
        "label": int(TEST.labels[0]),
        "predicted": int(first.predicted),
        "certified": bool(first.certified),
    }
    named = [(line["image"], line["patch"], line["rule"]) for line in lines_of(path)]
    assert named == [(image, entry.patch, entry.rule) for image in range(3) for entry in TWO]


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.jsonl.gz", "rows.jsonl.xz"])
def test_pandas_reads_rows(tmp_path: Path, name: str) -> None:
    pandas = pytest.importorskip("pandas")
    path = make_rows(tmp_path / name, {**HEADER, "scores_stored": True}, [FIRST | DETAILS, SECOND | DETAILS])
    table = pandas.read_json(path, lines=True)
    assert table.second_placement.isna().all() and len(read_rows(path).labels) == 2
    assert table.assign(second_placement=None).to_dict("records") == [FIRST | DETAILS, SECOND | DETAILS]
    assert table[table.predicted == table.label].groupby(["patch", "rule"]).certified.sum().to_dict() == {
        ("1x1", "two-mask"): 1
    }


def test_rows_are_bound_to_what_stands_beside_them(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl.gz", HEADER, [FIRST, SECOND])
    write_lines(path, [FIRST, {**SECOND, "certified": True}], seal=False)
    with pytest.raises(
        UsageError, match=r"rows.jsonl.gz does not match the SHA-256 in rows.meta.json\. Copy both files"
    ):
        read_rows(path)
    meta_path(path).unlink()
    with pytest.raises(UsageError, match=r"rows.jsonl.gz has no rows.meta.json beside it\. Copy both files\."):
        read_rows(path)


@pytest.mark.parametrize("first", [{**HEADER, "kind": "certificates"}, HEADER, {"kind": "attack", "images": 1}])
def test_rows_of_an_older_version_are_refused(tmp_path: Path, first: dict[str, Any]) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({**first, "recipe": "x" * 9999}) + "\n[0,1,[[1,1]]]\n")
    before = path.read_bytes()
    for read in (read_rows, read_attack_rows, read_meta, lambda path: resume(path, FACTS, 1)):
        with pytest.raises(UsageError, match=r"rows.jsonl was made by an older version\. (Certify|Attack) again\."):
            read(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "forged",
    [
        {"images": 10**10},
        {"images": 0},
        {"images": True},
        {"images": "2"},
        {"images": None},
        {"evaluations": []},
        {"evaluations": HEADER["evaluations"] * 2},
        {"evaluations": [{"patch": "1x1"}]},
        {"evaluations": [{"patch": 1, "rule": "two-mask"}]},
        {"evaluations": None},
        {"images": 2**22, "evaluations": [{"patch": f"1x{side}", "rule": "two-mask"} for side in range(1, 4)]},
        {"footprint": {"image_size": [10**7, 10**7]}},
        {"footprint": {"image_size": [8, 8, 8]}},
        {"footprint": {"grid": [0, 8]}},
        {"footprint": {"receptive_field": "5x5"}},
        {"footprint": []},
        {"footprint": {"layers": [{"kernel": [10**9, 1]}]}},
        {"footprint": {"kept": [-1, 4]}},
        {"footprint": {"hidden": {"rows": [[0, 10**9]]}}},
        {"footprint": {"layers": "all"}},
        {"kind": "attack"},
        {"kind": "others"},
        {"rows_sha256": 5},
        {"results": None},
    ],
)
def test_what_no_reader_should_believe_is_refused(tmp_path: Path, forged: dict[str, Any]) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, SECOND])
    edit_meta(path, lambda meta: meta.update(forged))
    for read in (read_rows, verify_rows):
        with pytest.raises(
            UsageError, match=r"does not hold rows of an evaluation \(.*\)\. Make it with bagcert certify\."
        ):
            read(path)


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        ({"format": "others"}, r"rows.meta.json does not name the format 'bagcert rows'\. Copy it again\."),
        ({"version": 2}, r"rows.jsonl is not in version 1 of the format\. Install the bagcert that made it\."),
        ({"recipe": "x" * 2**20}, r"rows.meta.json is too large to belong to rows\. Copy it again\."),
    ],
)
def test_other_formats_are_refused(tmp_path: Path, forged: dict[str, Any], words: str) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, SECOND])
    edit_meta(path, lambda meta: meta.update(forged))
    with pytest.raises(UsageError, match=words):
        read_rows(path)


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_rows_that_unpack_to_too_much_are_refused(tmp_path: Path, ending: str) -> None:
    """Small files that unpack to a thousand times their size: more lines than there are records, one without an end."""
    path = make_rows(tmp_path / f"rows.jsonl.{ending}", HEADER, [FIRST] * 10**5)
    assert path.stat().st_size < 10**5
    with pytest.raises(UsageError, match=r"The certificates in .* cannot be read \(ValueError: more text than"):
        read_rows(path)
    path.write_bytes(pack(b" " * 2**24, path.suffix))
    with pytest.raises(
        UsageError, match=r"The certificates in .* cannot be read \(ValueError: a line of more than \d+ bytes"
    ):
        read_rows(path)
    make_rows(path, {**HEADER, "kind": "attack", "patch": "1x1", "rule": "two-mask"}, [FIRST] * 10**5)
    with pytest.raises(UsageError, match=r"The attack in .* cannot be read \(ValueError: more text than"):
        read_attack_rows(path)


def test_xz_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl.xz", HEADER, [FIRST, SECOND])
    path.write_bytes(lzma.compress(b"{}", filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**30}]))
    with pytest.raises(UsageError, match=r"The certificates in .* cannot be read \(ValueError: Memory usage limit"):
        read_rows(path)


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_broken_files_are_refused(tmp_path: Path, ending: str) -> None:
    path = make_rows(tmp_path / f"rows.jsonl.{ending}", HEADER, [FIRST, SECOND])
    whole = path.read_bytes()
    for content in (b"no archive", whole[:-20], whole[:20] + b"\xff" * 8 + whole[28:], b""):
        path.write_bytes(content)
        with pytest.raises(
            UsageError, match=r"The certificates in .* cannot be read \(|does not match the SHA-256 in "
        ):
            read_rows(path)


@pytest.mark.parametrize(
    "second",
    [
        "a",
        [1, 0, [[1, 0]]],
        {},
        {**SECOND, "predicted": 0.5},
        {**SECOND, "predicted": True},
        {**SECOND, "predicted": 2**70},
        {**SECOND, "label": None},
        {**SECOND, "certified": 1},
        {**SECOND, "image": 2},
        {**SECOND, "image": 0},
        {**SECOND, "rule": "masked"},
        {**SECOND, "patch": 5},
        {name: value for name, value in SECOND.items() if name != "certified"},
    ],
)
def test_broken_records_are_refused(tmp_path: Path, second: Any) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, second])
    with pytest.raises(
        UsageError, match=r"The certificates in .* cannot be read \(|must go image by image|do not fit into 64 bits"
    ):
        read_rows(path)


@pytest.mark.parametrize(
    "detail",
    [
        {"lead": None},
        {"weakest_placement": None},
        {"weakest_placement": [0, 0, 1]},
        {"second_placement": [0, 0, 1, 0.5]},
        {"second_placement": [0, 0, 1, 1]},
        {"scores_sha256": None},
    ],
)
def test_broken_details_are_refused(tmp_path: Path, detail: dict[str, Any]) -> None:
    header = {**HEADER, "scores_stored": True}
    path = make_rows(tmp_path / "rows.jsonl", header, [FIRST | DETAILS, SECOND | DETAILS | detail])
    with pytest.raises(
        UsageError, match=r"The certificates in .* cannot be read \(|Some images in .* have no placements"
    ):
        read_rows(path)


def test_missing_records_are_refused(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST])
    with pytest.raises(UsageError, match=r"rows.jsonl holds 1 of 2 images\. Repeat the same bagcert certify command"):
        read_rows(path)
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, SECOND])
    unfinish(path)
    with pytest.raises(UsageError, match=r"holds all 2 images, but is not finished\. Repeat the same bagcert certify"):
        read_rows(path)
    two = [{"patch": patch, "rule": "two-mask"} for patch in ("1x1", "2x2")]
    records = [{**FIRST, "patch": "1x1"}, {**FIRST, "patch": "2x2", "label": 0}]
    path = make_rows(path, {**HEADER, "images": 1, "evaluations": two}, records)
    with pytest.raises(UsageError, match=r"Some image in .*rows.jsonl has several labels\. Certify again\."):
        read_rows(path)


def test_lines_of_several_objects_are_refused(tmp_path: Path) -> None:
    """Joined they would be records; on their own they are no lines of JSON."""
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, SECOND])
    path.write_text(f"{json.dumps(FIRST)},{json.dumps(SECOND)}\n")
    edit_meta(path, lambda meta: meta.update(rows_sha256=sha256(path.read_bytes())))
    with pytest.raises(UsageError, match="lines that are not one object each"):
        read_rows(path)


def test_numbers_that_python_does_not_read_are_refused(tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, [FIRST, SECOND])
    meta_path(path).write_text(meta_path(path).read_text().replace('"images": 2', '"images": ' + "9" * 5000))
    with pytest.raises(UsageError, match=r"Cannot read .*rows.meta.json as JSON: .* Copy it again"):
        read_rows(path)
