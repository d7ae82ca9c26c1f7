"""Rows that survive a crash, continue where they stopped, and never overwrite others."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

import bagcert
from bagcert.certify import certified_size
from bagcert.errors import UsageError
from bagcert.rows import write
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.format import Evaluation, file_kind, parse_lines, read_rows, summary
from bagcert.rows.shipping import card_table
from bagcert.rows.stored_scores import ScoreFiles, digest, read_chunk, scores_folder, store_scores
from bagcert.rows.write import Plan, write_rows
from tests.rows.digit_runs import DIGITS, save_digit_run

TEST = DIGITS.split("test")
TWO = [Evaluation("1x2", "every-region"), Evaluation("1x1", "two-mask")]
FACTS: dict[str, Any] = {"model": "a", "classes": list(DIGITS.classes), "footprint": {"grid": [8, 8]}}


@pytest.mark.parametrize("scores", [False, True])
def test_rows_continue_after_a_crash(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: bool) -> None:
    monkeypatch.setattr(write, "BATCH", 50)
    defense, plan = bagcert.load(run), Plan(TWO, len(TEST), scores)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    write_rows(whole, defense, plan, TEST, FACTS)
    content = whole.read_text()
    header = content.index("\n")
    for length in (10, header, len(content) // 2, len(content) - 3):
        cut.write_text(content[:length])
        if length == 10:  # not even the first line is whole
            with pytest.raises(UsageError, match=r"expected rows of certificates in .*, got something else"):
                write_rows(cut, defense, plan, TEST, FACTS)
            assert cut.read_text() == content[:length], "a file that is not ours was touched"
            continue
        if length < len(content) - 3:
            with pytest.raises(UsageError, match="certify to the end"):
                read_rows(cut)
        counted: list[int] = []
        write_rows(cut, defense, plan, TEST, FACTS, counted.append)
        assert cut.read_text() == content
        assert (counted[0] % 50 == 0 or counted[0] == len(TEST)) and sum(counted) == len(TEST)
    write_rows(whole, defense, plan, TEST, FACTS)
    assert whole.read_text() == content, "a finished file was changed"
    if scores:
        names = [sorted(path.name for path in scores_folder(rows).iterdir()) for rows in (whole, cut)]
        assert names[0] == [f"{start:08}.safetensors" for start in range(0, len(TEST), 50)]
        assert set(names[1]) <= set(names[0])


def test_rows_of_another_model_are_not_overwritten(run: Path, tmp_path: Path) -> None:
    defense, path = bagcert.load(run), tmp_path / "rows.jsonl"
    write_rows(path, defense, Plan(TWO[:1], 20), TEST, FACTS)
    content = path.read_text()
    for plan, facts, apart in (
        (Plan(TWO[1:], 20), FACTS, "evaluations"),
        (Plan(TWO[:1], 21), FACTS, "images"),
        (Plan(TWO[:1], 20, scores=True), FACTS, "scores_stored"),
        (Plan(TWO[:1], 20), {**FACTS, "seed": 9, "more": 1}, "seed, more"),
    ):
        with pytest.raises(UsageError, match=rf"expected rows with the same {apart} in .*, got others; choose another"):
            write_rows(path, defense, plan, TEST, facts)
    assert path.read_text() == content


def test_scores_of_other_rows_are_not_overwritten(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, bagcert.load(run), Plan(TWO, 20, scores=True), TEST, FACTS)
    path.unlink()
    with pytest.raises(UsageError, match="expected no scores of other rows in"):
        write_rows(path, bagcert.load(run), Plan(TWO, 20, scores=True), TEST, FACTS)


def test_a_gap_is_not_continued(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, bagcert.load(run), Plan(TWO, 20), TEST, FACTS)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:5] + lines[6:-1]))
    with pytest.raises(UsageError, match="expected rows numbered from 0 in"):
        write_rows(path, bagcert.load(run), Plan(TWO, 20), TEST, FACTS)


@pytest.mark.parametrize("step", ["heaviside", "logits"])
def test_rows_with_scores_hold_the_whole_certificate(tmp_path: Path, step: str) -> None:
    defense = bagcert.load(save_digit_run(tmp_path / "run", step, "two-mask"))
    evaluations = [Evaluation("2x2", "two-mask")] + ([TWO[0]] if step == "heaviside" else [])
    path = tmp_path / "rows.jsonl"
    write_rows(path, defense, Plan(evaluations, 130, scores=True), TEST, FACTS)
    rows = read_rows(path)
    images = next(TEST.batches(130, "cpu")).images
    assert rows.labels.tolist() == TEST.labels[:130].tolist()
    for entry, stored in rows.results.items():
        fresh = defense.against(entry.patch, entry.rule)
        for name, value in vars(fresh.certify(images)).items():
            other = getattr(stored, name)
            assert (value is None and other is None) or torch.equal(value, other), name
        values = defense.scores(images).values
        masks = entry.patch if entry.rule == "two-mask" else None
        bounds, footprint = defense.scorer.step.bounds, defense.scorer.footprint
        sides = certified_size(values, rule=entry.rule, bounds=bounds, patch=masks, footprint=footprint)
        assert torch.equal(rows.sides[entry], sides)
    files = ScoreFiles(path, rows.header)
    lines = parse_lines(path)
    for number in (0, 95, 96, 129):
        kept = files.image(number)
        assert kept is not None and (kept == values[number].numpy()).all()
        assert digest(kept) == lines.images[number][3]
    assert files.image(130) is None
    assert lines.footer == {"results": summary(rows)}


def test_scores_are_small_on_disk(tmp_path: Path) -> None:
    votes = torch.randint(0, 2, (5, 3, 4, 5), dtype=torch.int32)
    for name, values, size in (("votes", votes, 8), ("short", votes * 30000, 120), ("long", votes * 2**19, 240)):
        store_scores(tmp_path / name, 0, values.numpy())
        path = tmp_path / name / "00000000.safetensors"
        assert (read_chunk(path, (3, 4, 5)) == values.numpy()).all()
        assert path.stat().st_size < 5 * size + 120
    path.write_bytes(b"none")
    with pytest.raises(UsageError, match="expected scores of a batch in"):
        read_chunk(path, (3, 4, 5))


def test_a_rule_that_does_not_fit_is_refused_before_a_file_is_made(tmp_path: Path) -> None:
    defense = bagcert.load(save_digit_run(tmp_path / "run", "logits", "two-mask"))
    with pytest.raises(UsageError, match="Rule 'masked' needs scores of at least 0"):
        write_rows(tmp_path / "rows.jsonl", defense, Plan([Evaluation("1x1", "masked")], 9), TEST, FACTS)
    assert not (tmp_path / "rows.jsonl").exists()


def test_a_full_disk_keeps_the_rows(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BATCH", 10)
    path, plain, calls = tmp_path / "rows.jsonl", os.fsync, [0]

    def full(number: int) -> None:
        calls[0] += 1
        if calls[0] == 3:  # after the first line and its folder
            raise OSError(28, "No space left on device")
        plain(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match=r": No space left on device\. The rows so far are kept"):
            write_rows(path, bagcert.load(run), Plan(TWO, 25), TEST, FACTS)
    write_rows(path, bagcert.load(run), Plan(TWO, 25), TEST, FACTS)
    assert len(read_rows(path).labels) == 25


@pytest.mark.slow
def test_rows_that_unpack_to_too_much_are_refused(tmp_path: Path) -> None:
    """A small file of gzip members, each of which unpacks to a thousand times its size; and a line without an end."""
    header = b'{"images": 2, "evaluations": [{"patch": "1x1", "rule": "two-mask"}]}\n'
    row = b"[0,1,[[1,1]]" + b" " * 2**19 + b"]\n"
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(header) + gzip.compress(row * 64) * 9)
    assert path.stat().st_size < 2**19
    with pytest.raises(UsageError, match=r"expected rows of an evaluation in .*: more text than"):
        read_rows(path)
    with pytest.raises(UsageError, match=r"expected rows of an attack in .*: more text than"):
        read_attack_rows(path)
    path.write_bytes(gzip.compress(b" " * 2**21))
    for read in (read_rows, read_attack_rows, file_kind):
        with pytest.raises(UsageError, match=r"expected rows of an .*: a line of more than \d+ bytes"):
            read(path)


def test_broken_rows_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(b"no gzip")
    with pytest.raises(UsageError, match="expected rows of an evaluation in"):
        read_rows(path)
    whole = bytearray(gzip.compress(b"[0,1,[[1,1]]]" * 99))
    whole[12:20] = b"\xff" * 8  # inside what is packed
    path.write_bytes(whole)
    with pytest.raises(UsageError, match="expected rows of an evaluation in"):
        read_rows(path)
    header: dict[str, Any] = {"images": 2, "evaluations": [{"patch": "1x1", "rule": "two-mask"}]}

    def write(*lines: str) -> None:
        path.write_bytes(gzip.compress("".join(line + "\n" for line in (json.dumps(header), *lines)).encode()))

    write("[0,1,[[1,1]]]")
    with pytest.raises(UsageError, match=r"expected 2 rows in .*, got 1; certify to the end"):
        read_rows(path)
    write("[0,1,[[1,1]]]", "[1,0,[[1,1],[1,1]]]")
    with pytest.raises(UsageError, match="expected a row with 1 results in"):
        read_rows(path)
    for row in ('"a"', "[1,0,[[1]]]", "[1,0,[[1,0.5]]]", "[1,null,[[1,0]]]", "[1,0,[[1,0,5]]]", "[1,0,[7]]"):
        write("[0,1,[[1,1]]]", row)
        with pytest.raises(UsageError, match="expected a row with 1 results in"):
            read_rows(path)
    header["scores_stored"] = True
    write("[0,1,[[1,1,3,0,[0,0,1,1],null,1]]]", "[1,0,[[1,1,3,0,[0,0,1],null,1]]]")
    with pytest.raises(UsageError, match="expected numbers for every evaluation in"):
        read_rows(path)
    del header["scores_stored"]
    write("[0,1,[[1,1]]]", "[1,0,[[1,0]]]")  # as made by earlier versions, without the last line
    assert card_table(path) == [{"patch": "1x1", "rule": "two-mask", "clean": 0.5, "certified": 0.5, "answered": 0.5}]
    assert read_rows(path).model == tmp_path.name
