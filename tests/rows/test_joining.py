"""Shards of a split, joined: the very files of a run over the whole, or one line that says what does not fit."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bagcert
from bagcert.errors import UsageError
from bagcert.rows import write
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.format import Evaluation, Record, meta_path
from bagcert.rows.header import describe
from bagcert.rows.joining import join_rows
from bagcert.rows.leaderboard import check_entry
from bagcert.rows.resume import append_records, finish, resume
from bagcert.rows.shards import Shard, cut, numbers_of, shard_of, whole_header
from bagcert.rows.standings import REFUSED
from bagcert.rows.stored_scores import digest, scores_folder, store_scores
from bagcert.rows.verify.check import verify_rows
from bagcert.rows.write import Plan, write_rows
from tests.rows.digit_runs import DIGITS, save_digit_run
from tests.rows.forging import edit_lines, edit_meta, unfinish

TEST = DIGITS.split("test")
TWO = [Evaluation("1x2", "every-region"), Evaluation("1x1", "two-mask")]
IMAGES, AT_ONCE = 107, 16


def files_of(rows: Path) -> dict[str, bytes]:
    """All that lies on the disk for these rows, by kind."""
    scores = {path.name: path.read_bytes() for path in sorted(scores_folder(rows).glob("*"))}
    return {"rows": rows.read_bytes(), "meta": meta_path(rows).read_bytes(), **scores}


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with whole.jsonl and its three shards 1.jsonl to 3.jsonl, with scores."""
    folder = tmp_path_factory.mktemp("certified")
    defense = bagcert.load(save_digit_run(folder / "run"))
    facts = describe("run", defense, DIGITS, "test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write, "BATCH", 40)
        for name, shard in {"whole": None, **{str(n): cut(f"{n}/3", IMAGES, AT_ONCE) for n in (1, 2, 3)}}.items():
            write_rows(folder / f"{name}.jsonl", defense, Plan(TWO, IMAGES, True, shard=shard), TEST, facts)
    return folder


@pytest.fixture
def parts(certified: Path, tmp_path: Path) -> list[Path]:
    """A copy of the three shards, to change."""
    shutil.copytree(certified, tmp_path, dirs_exist_ok=True)
    return [tmp_path / f"{number}.jsonl" for number in (1, 2, 3)]


def test_joined_shards_are_the_files_of_the_whole(certified: Path, tmp_path: Path) -> None:
    out, counted = tmp_path / "joined.jsonl", list[int]()
    join_rows([certified / f"{number}.jsonl" for number in (3, 1, 2)], out, counted.append)
    assert files_of(out) == files_of(certified / "whole.jsonl")
    assert sum(counted) == IMAGES
    assert verify_rows(out).problems == []


def test_a_shard_is_verified_by_itself_but_counts_nowhere(certified: Path) -> None:
    path = certified / "2.jsonl"
    verdict = verify_rows(path)
    assert (verdict.images, verdict.problems) == (len(range(32, 64)), [])
    rows = read_rows(path, shard=True)
    assert numbers_of(rows.header) == range(32, 64) and rows.labels.tolist() == TEST.labels[32:64].tolist()
    assert list(rows.to_pandas().image)[:32] == list(range(32, 64))
    with pytest.raises(UsageError, match=r"2.jsonl is shard 2 of 3\. Make one file of all of them: bagcert rows join"):
        read_rows(path)
    entry = check_entry(path)
    assert entry.level == REFUSED and "is shard 2 of 3" in entry.why, "nobody chooses which images count"


def test_a_forged_certificate_joins_and_is_found_by_verify(parts: list[Path], tmp_path: Path) -> None:
    edit_lines(parts[1], lambda line: line.update(certified=not line["certified"]), image=40, rule="two-mask")
    assert verify_rows(parts[1]).problems[0].image == 40
    join_rows(parts, tmp_path / "joined.jsonl")
    assert {problem.image for problem in verify_rows(tmp_path / "joined.jsonl").problems} == {40}


def test_a_shard_continues_after_a_crash(parts: list[Path], certified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BATCH", 40)
    defense, plan = bagcert.load(certified / "run"), Plan(TWO, IMAGES, True, shard=cut("3/3", IMAGES, AT_ONCE))
    last, before, counted = parts[2], files_of(parts[2]), list[int]()
    unfinish(last)
    last.write_bytes(before["rows"][:-10])
    write_rows(last, defense, plan, TEST, describe("run", defense, DIGITS, "test"), counted.append)
    assert files_of(last) == before and counted == [40, 3]


def put(name: str, value: Any) -> Callable[[Path], None]:
    return lambda path: edit_meta(path, lambda meta: meta.update({name: value}))


def put_shard(**values: Any) -> Callable[[Path], None]:
    return lambda path: edit_meta(path, lambda meta: meta["shard"].update(values))


def drop_scores(path: Path) -> None:
    min(scores_folder(path).iterdir()).unlink()


def change_scores(path: Path) -> None:
    store_scores(scores_folder(path), 32, np.ones((32, 10, 8, 8), np.int32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("model", "another"), r"2.jsonl and .*1.jsonl differ in model\. Certify all shards by the same command"),
        (put("weights_sha256", "0" * 64), r"differ in weights_sha256\."),
        (put("data", {"name": "digits", "digest": "0"}), r"differ in data\."),
        (put("split", "train"), r"differ in split\."),
        (put("device", "another GPU"), r"differ in device\."),
        (put("arithmetic", "other"), r"differ in arithmetic\."),
        (put("versions", {"torch": "1"}), r"differ in versions\."),
        (put("later", 1), r"differ in later\."),
        (put("scores_stored", False), r"differ in scores_stored\."),
        (put("evaluations", [{"patch": "1x2", "rule": "every-region"}]), r"differ in evaluations\."),
        (put("format", "other"), r"2.meta.json does not name the format"),
        (put("version", 2), r"2.jsonl is not in version 1 of the format"),
        (put("kind", "attack"), r"2.jsonl does not hold rows of an evaluation"),
        (put_shard(of=4), r"differ in shards\."),
        (put_shard(images=200), r"differ in images\."),
        (put_shard(batch=41), r"differ in shard batch\."),
        (put_shard(number=1), r"1.jsonl and .*2.jsonl are both shard 1 of 3\. Name one of them\."),
        (put_shard(number=0), r"shard 0 of 3 with 32 images"),
        (put_shard(number=True), r"a shard that is not described by numbers"),
        (put_shard(first=16), r"2.jsonl must begin at image 32, but begins at 16"),
        (put_shard(first=33), r"2.jsonl must begin at image 32, but begins at 33"),
        (put_shard(first=90), r"shard 2 of 3 with 32 images from 90 on, of 107"),
        (put("shard", 2), r"a shard that is no object"),
        (put("shard", {}), r"does not hold rows of an evaluation \('number'\)"),
        (put("rows_sha256", "0" * 64), r"2.jsonl does not match the SHA-256 in 2.meta.json"),
        (unfinish, r"2.jsonl holds all 32 images, but is not finished\. Repeat the same bagcert certify command"),
        (lambda path: edit_meta(path, lambda meta: meta.pop("shard")), r"2.jsonl is no shard\. Join what"),
        (
            lambda path: edit_lines(path, lambda line: line.update(image=31), image=33),
            r"must go image by image from 32",
        ),
        (lambda path: edit_lines(path, lambda line: line.update(label="1"), image=33), r"label that is no int"),
        (drop_scores, r"The scores of image 32 of .*2.jsonl are not there\. Copy .*2.scores again\."),
        (change_scores, r"The scores of image 32 of .*2.jsonl are not those that its row names by digest"),
        (lambda path: meta_path(path).unlink(), r"2.jsonl has no 2.meta.json beside it"),
    ],
)
def test_parts_that_do_not_fit_are_refused_and_nothing_is_written(
    parts: list[Path], tmp_path: Path, change: Callable[[Path], None], words: str
) -> None:
    change(parts[1])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=words) as refused:
        join_rows(parts, tmp_path / "joined.jsonl")
    assert "\n" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


def test_missing_and_repeated_shards_are_named(parts: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "joined.jsonl"
    for chosen, words in (
        ([parts[0]], r"Of 3 shards, 2, 3 are missing\. Name all\."),
        ([parts[0], parts[2]], r"Of 3 shards, 2 is missing\."),
        ([*parts, parts[2]], r"3.jsonl and .*3.jsonl are both shard 3 of 3\."),
        ([tmp_path / "whole.jsonl", *parts], r"whole.jsonl is no shard\."),
    ):
        with pytest.raises(UsageError, match=words):
            join_rows(chosen, out)
    short = parts[2]
    edit_meta(short, lambda meta: meta.update(images=42))
    with pytest.raises(UsageError, match=r"The shards end at image 106 of 107\. Certify the last one again\."):
        join_rows(parts, out)
    assert not out.exists()


def test_other_rows_are_kept_and_an_interrupted_join_goes_on(parts: list[Path], tmp_path: Path) -> None:
    out, whole = tmp_path / "joined.jsonl", tmp_path / "whole.jsonl"
    with pytest.raises(UsageError, match=r"2.jsonl holds rows that differ in images, shard\. Choose another --out\."):
        join_rows(parts, parts[1])
    before = files_of(whole)
    join_rows(parts, whole)
    assert files_of(whole) == before, "it is there already"
    unfinish(whole)
    whole.write_bytes(b"")
    shutil.rmtree(scores_folder(whole))
    join_rows(parts, whole)
    assert files_of(whole) == before
    join_rows(parts, out)
    edit_lines(out, lambda line: line.update(label=(line["label"] + 1) % 10), image=3)
    with pytest.raises(UsageError, match=r"joined.jsonl holds other rows than these shards\."):
        join_rows(parts, out)


@pytest.mark.parametrize("text", ["0/8", "9/8", "x", "1", "1/0", "-1/8", "1/8/9", "1.5/8", "٣/8", "1/999999", ""])
def test_impossible_shards(text: str) -> None:
    with pytest.raises(UsageError, match=r"There is no shard '.*'\. Write 1/8, 2/8"):
        cut(text, 1000, 16)


@given(st.integers(1, 3000), st.integers(1, 40), st.data())
def test_shards_are_whole_batches_one_after_the_other(images: int, at_once: int, data: st.DataObject) -> None:
    batches = -(-images // at_once)
    of = data.draw(st.integers(1, batches))
    shards = [cut(f"{number}/{of}", images, at_once) for number in range(1, of + 1)]
    assert [image for shard in shards for image in shard.part] == list(range(images))
    assert all(shard.part.start % at_once == 0 for shard in shards)
    counts = [-(-len(shard.part) // at_once) for shard in shards]
    assert max(counts) - min(counts) <= 1, "none has a batch more than another needs"
    header = {"a": 1, "images": images, "b": 2}
    for shard in shards:
        part = {**header, "images": len(shard.part), **shard.header}
        assert shard_of(part) == shard and list(whole_header(part).items()) == list(header.items())
    with pytest.raises(UsageError, match=rf"Use at most {batches} shards?, not {batches + 1}\."):
        cut(f"1/{batches + 1}", images, at_once)


def write_made_up(path: Path, header: dict[str, Any], numbers: range, batch: int) -> None:
    """Rows with scores as `write_rows` leaves them, of a network that nobody ran."""
    resume(path, header, batch)
    values = [np.full((2, 1, 1), 7 * number, np.int32) for number in numbers]
    for place in range(0, len(values), batch):
        store_scores(scores_folder(path), numbers.start + place, np.stack(values[place : place + batch]))
    details: dict[str, Any] = {"lead": 1, "weakest_class": 0, "weakest_placement": (0, 0, 1, 1), "certified_square": 1}
    records = [
        Record(*entry, number, number % 2, 0, True, scores_sha256=digest(value), **details)
        for number, value in zip(numbers, values, strict=True)
        for entry in MADE_UP
    ]
    append_records(path, records)
    finish(path, summary(read_rows(path, finished=False, shard=True)))


MADE_UP = (("1x1", "two-mask"), ("1x2", "every-region"))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 11), st.data())
def test_any_shards_join_to_the_whole(images: int, at_once: int, batch: int, data: st.DataObject) -> None:
    of = data.draw(st.integers(1, min(6, -(-images // at_once))))
    evaluations = [{"patch": patch, "rule": rule} for patch, rule in MADE_UP]
    header = {"model": "m", "classes": ["a", "b"], "footprint": {"grid": [1, 1]}, "scores_stored": True}
    header |= {"images": images, "evaluations": evaluations}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_made_up(folder / "whole.jsonl", header, range(images), batch)
        paths = []
        for number in range(1, of + 1):
            shard: Shard = cut(f"{number}/{of}", images, at_once)
            paths.append(folder / f"{number}.jsonl")
            table = {"shard": {**shard.header["shard"], "batch": batch}}
            write_made_up(paths[-1], {**header, "images": len(shard.part), **table}, shard.part, batch)
        join_rows(data.draw(st.permutations(paths)), folder / "joined.jsonl")
        assert files_of(folder / "joined.jsonl") == files_of(folder / "whole.jsonl")


def test_a_shard_must_say_how_its_scores_are_stored(parts: list[Path], tmp_path: Path) -> None:
    for path in parts:
        edit_meta(path, lambda meta: meta["shard"].pop("batch"))
    with pytest.raises(UsageError, match=r"1.jsonl does not say how many images were certified at a time\."):
        join_rows(parts, tmp_path / "joined.jsonl")
