from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run
from tests.rows.forging import lines_of, write_lines

pytestmark = pytest.mark.slow


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    save_digit_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "certify", "run", "--limit", "30", "--scores", "--out", "rows.jsonl") == 0
    capsys.readouterr()
    return tmp_path / "rows.jsonl"


def test_good_rows_hold(rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "verify", str(rows)) == 0
    out = capsys.readouterr().out
    assert "checked 30 certificates of 30 images from their stored scores" in out
    assert "in 0..1 for any image, each seeing 5x5 pixels by 2 layers; labels and names of classes are those" in out
    assert "all hold, and so do the accuracies" in out


def test_bad_rows_are_named(rows: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(rows)
    for line in lines[2:]:
        line["certified"] = not line["certified"]
    write_lines(rows, lines)
    assert call(monkeypatch, "verify", str(rows)) == 1
    out = capsys.readouterr().out
    assert "image 2: 1x1 every-region: " in out and "row says otherwise" in out
    assert " more\n" in out
    assert f"images: {', '.join(map(str, range(2, 30)))}\n" in out


def test_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "verify", str(tmp_path / "none.jsonl")) == 2
    words = f"bagcert: There is no file {tmp_path / 'none.jsonl'}. Make it with bagcert certify."
    assert words in capsys.readouterr().err
