"""`bagcert certify --shard` and `bagcert rows join`, from end to end."""

import json
from pathlib import Path

import pytest

from bagcert.rows.format import meta_path
from bagcert.rows.stored_scores import scores_folder
from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run

CHOICES = ["--patch", "1x1", "--patch", "1x3", "--rule", "every-region", "--rule", "two-mask", "--limit", "301"]


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return save_digit_run(tmp_path / "run")


@pytest.mark.parametrize("scores", [[], ["--scores"]])
def test_joined_shards_are_the_rows_of_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], scores: list[str]
) -> None:
    command = ["certify", "run", *CHOICES, *scores]
    assert call(monkeypatch, *command, "--out", "whole.jsonl") == 0
    for number in (2, 3, 1, 2):  # one of them twice: it continues, and finds that nothing is left
        assert call(monkeypatch, *command, "--shard", f"{number}/3") == 0
    parts = sorted(map(str, Path("rows").glob("*-of-3.jsonl")))
    assert [path[-12:] for path in parts] == ["1-of-3.jsonl", "2-of-3.jsonl", "3-of-3.jsonl"]
    told = json.loads(meta_path(Path(parts[1])).read_text())
    assert (told["images"], told["shard"]) == (96, {"number": 2, "of": 3, "first": 96, "images": 301, "batch": 96})
    capsys.readouterr()
    assert call(monkeypatch, "rows", "join", *parts, "--out", "joined.jsonl") == 0
    said = capsys.readouterr().out
    assert "301 images in 3 shards, all digests hold; rows: joined.jsonl" in said
    assert ("bagcert verify joined.jsonl" in said) == bool(scores)
    assert Path("joined.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()
    assert Path("joined.meta.json").read_bytes() == Path("whole.meta.json").read_bytes()
    files, others = (sorted(scores_folder(Path(f"{name}.jsonl")).glob("*")) for name in ("whole", "joined"))
    assert [path.name for path in files] == [path.name for path in others] and bool(files) == bool(scores)
    assert all(path.read_bytes() == other.read_bytes() for path, other in zip(files, others, strict=True))
    assert call(monkeypatch, "verify", "joined.jsonl") == (0 if scores else 2)
    assert call(monkeypatch, "report", parts[0]) == 2
    assert "is shard 1 of 3. Make one file of all of them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["certify", "run", "--shard", "0/8"], "There is no shard '0/8'. Write 1/8, 2/8 and so on up to 8/8"),
        (["certify", "run", "--shard", "9/8"], "There is no shard '9/8'."),
        (["certify", "run", "--shard", "x"], "There is no shard 'x'."),
        (
            ["certify", "run", "--shard", "1/3", "--limit", "20"],
            "20 images make 2 of the batches of 16 that shards consist of. Use at most 2 shards, not 3.",
        ),
        (["rows", "split", "a.jsonl", "--out", "b.jsonl"], "There is no 'rows split'. Write bagcert rows join PART..."),
        (["rows", "join", "a.jsonl", "--out", "b.jsonl"], "There is no file a.jsonl."),
        (["rows", "join", "run/config.json", "--out", "b.jsonl"], "run/config.json is not a file of rows"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("bagcert: ") and words in lines[0]
    assert not Path("rows").exists() and not Path("b.jsonl").exists()
