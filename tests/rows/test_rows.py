"""Rows that survive a crash, continue where they stopped, and never overwrite others."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
from torch import nn

import bagcert
from bagcert.certify import certified_size
from bagcert.errors import UsageError
from bagcert.files import sha256
from bagcert.rows import write
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.format import Evaluation, meta_path, read_meta, read_records
from bagcert.rows.header import describe
from bagcert.rows.stored_scores import ScoreFiles, digest, read_chunk, scores_folder, store_scores
from bagcert.rows.write import Plan, write_rows
from bagcert.rules.certificate import TENSORS
from tests.rows.digit_runs import DIGITS, save_digit_run
from tests.rows.forging import unfinish

TEST = DIGITS.split("test")
TWO = [Evaluation("1x2", "every-region"), Evaluation("1x1", "two-mask")]
FACTS: dict[str, Any] = {"model": "a", "classes": list(DIGITS.classes), "footprint": {"grid": [8, 8]}}


@pytest.mark.parametrize("scores", [False, True])
def test_rows_continue_after_a_crash(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scores: bool) -> None:
    monkeypatch.setattr(write, "BATCH", 50)
    defense, plan = bagcert.load(run), Plan(TWO, len(TEST), scores)
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    write_rows(whole, defense, plan, TEST, FACTS)
    content, beside = whole.read_text(), meta_path(whole).read_text()
    for length in (0, 10, len(content) // 2, len(content) - 3, len(content)):
        shutil.copy(meta_path(whole), meta_path(cut))
        unfinish(cut)
        cut.write_text(content[:length])
        with pytest.raises(UsageError, match=r"images.*\. Repeat the same bagcert certify command: it continues\."):
            read_rows(cut)
        counted: list[int] = []
        write_rows(cut, defense, plan, TEST, FACTS, counted.append)
        assert cut.read_text() == content and meta_path(cut).read_text() == beside
        assert (counted[0] % 50 == 0 or counted[0] == len(TEST)) and sum(counted) == len(TEST)
    cut.unlink()
    unfinish(cut)
    shutil.rmtree(scores_folder(cut), ignore_errors=True)
    write_rows(cut, defense, plan, TEST, FACTS)
    assert cut.read_text() == content, "a crash between the two files"
    write_rows(whole, defense, plan, TEST, FACTS)
    assert whole.read_text() == content and meta_path(whole).read_text() == beside, "a finished file was changed"
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
        with pytest.raises(UsageError, match=rf"rows.jsonl holds rows that differ in {apart}\. Choose another --out\."):
            write_rows(path, defense, plan, TEST, facts)
    assert path.read_text() == content


def test_networks_of_one_set_of_weights_do_not_share_rows(tmp_path: Path) -> None:
    """The color of a mask is no weight, but another color is another network."""
    network, path = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval(), tmp_path / "rows.jsonl"
    found = []
    for name, fill in (("gray", 0.5), ("white", 1.0)):
        made = bagcert.cover(network, 8, DIGITS.classes, "1x1", masks=2, fill=(fill,), channels=1)
        made.save(tmp_path / name)
        found.append(bagcert.load(tmp_path / name, network=network))
    gray, white = found
    assert gray.card["weights_sha256"] == white.card["weights_sha256"]
    plan = Plan([Evaluation("1x1", "unanimous")], 20)
    write_rows(path, gray, plan, TEST, describe("run", gray, DIGITS, "test"))
    with pytest.raises(UsageError, match=r"holds rows that differ in network\."):
        write_rows(path, white, plan, TEST, describe("run", white, DIGITS, "test"))


def test_scores_of_other_rows_are_not_overwritten(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, bagcert.load(run), Plan(TWO, 20, scores=True), TEST, FACTS)
    path.unlink()
    with pytest.raises(UsageError, match=r"The certificates in .* cannot be read \(FileNotFoundError"):
        write_rows(path, bagcert.load(run), Plan(TWO, 20, scores=True), TEST, FACTS)
    meta_path(path).unlink()
    with pytest.raises(UsageError, match=r"rows.scores holds scores of other rows\. Move it away\."):
        write_rows(path, bagcert.load(run), Plan(TWO, 20, scores=True), TEST, FACTS)


def test_a_gap_is_not_continued(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, bagcert.load(run), Plan(TWO, 20), TEST, FACTS)
    lines = path.read_text().splitlines(keepends=True)
    unfinish(path)
    path.write_text("".join(lines[:5] + lines[6:]))
    with pytest.raises(UsageError, match=r"The records in .*rows.jsonl must go image by image"):
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
        certificate = fresh.certify(images)
        for name in TENSORS:
            value, other = getattr(certificate, name), getattr(stored, name)
            assert (value is None and other is None) or torch.equal(value, other), name
        values = defense.scores(images).values
        masks = entry.patch if entry.rule == "two-mask" else None
        bounds, footprint = defense.scorer.step.bounds, defense.scorer.footprint
        sides = certified_size(values, rule=entry.rule, bounds=bounds, patch=masks, footprint=footprint)
        assert torch.equal(rows.squares[entry], sides)
    files = ScoreFiles(path, rows.header)
    meta = read_meta(path)
    records = list(read_records(path, meta))
    for record in (record for record in records if record.image in (0, 95, 96, 129)):
        kept = files.image(record.image)
        assert kept is not None and (kept == values[record.image].numpy()).all()
        assert digest(kept) == record.scores_sha256
    assert files.image(130) is None
    assert meta.results == summary(rows) and meta.rows_sha256 == sha256(path.read_bytes())


def test_scores_are_small_on_disk(tmp_path: Path) -> None:
    votes = torch.randint(0, 2, (5, 3, 4, 5), dtype=torch.int32)
    for name, values, size in (("votes", votes, 8), ("short", votes * 30000, 120), ("long", votes * 2**19, 240)):
        store_scores(tmp_path / name, 0, values.numpy())
        path = tmp_path / name / "00000000.safetensors"
        assert (read_chunk(path, (3, 4, 5)) == values.numpy()).all()
        assert path.stat().st_size < 5 * size + 120
    for shape in ((3, 4, 6), (10**6, 4096, 4096)):
        with pytest.raises(UsageError, match=r"00000000.safetensors does not hold the scores of a batch \("):
            read_chunk(tmp_path / "votes" / "00000000.safetensors", shape)
    path.write_bytes(b"none")
    with pytest.raises(UsageError, match=r"00000000.safetensors does not hold the scores of a batch \("):
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
        if calls[0] == 6:  # after both files, their folder each time, and the first batch
            raise OSError(28, "No space left on device")
        plain(number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(UsageError, match=r": No space left on device\. The rows so far are kept"):
            write_rows(path, bagcert.load(run), Plan(TWO, 25), TEST, FACTS)
    write_rows(path, bagcert.load(run), Plan(TWO, 25), TEST, FACTS)
    assert len(read_rows(path).labels) == 25


@pytest.mark.parametrize(
    "forged",
    [
        {"votes": np.zeros(8, np.uint8)},
        {"votes": np.zeros((1, 8), np.int16)},
        {"scores": np.full((1, 3, 4, 5), np.nan, np.float32)},
        {"scores": np.zeros((1, 3, 4, 5), np.int64)},
        {},
    ],
)
def test_scores_of_another_kind_are_refused(tmp_path: Path, forged: dict[str, np.ndarray]) -> None:
    (tmp_path / "x.safetensors").write_bytes(safetensors.numpy.save(forged))
    with pytest.raises(
        UsageError, match=r"does not hold the scores of a batch .*\. Make it again with bagcert certify"
    ):
        read_chunk(tmp_path / "x.safetensors", (3, 4, 5))
