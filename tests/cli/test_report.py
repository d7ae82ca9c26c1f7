from pathlib import Path

import pytest

from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run
from tests.rows.forging import unfinish


@pytest.mark.slow
def test_a_report_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    save_digit_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, "certify", "run", "--limit", "30", "--scores", "--out", "rows.jsonl") == 0
    capsys.readouterr()
    assert call(monkeypatch, "report", "rows.jsonl", "--out", "pages") == 0
    assert capsys.readouterr().out == "wrote pages/report.html\n"
    assert Path("pages/report.html").read_text().startswith("<!DOCTYPE html>")
    assert call(monkeypatch, "report", "none.jsonl") == 2
    assert "bagcert: There is no file none.jsonl. Make it with bagcert certify." in capsys.readouterr().err
    unfinish(Path("rows.jsonl"))
    assert call(monkeypatch, "report", "rows.jsonl") == 2
    assert "is not finished. Repeat the same bagcert certify command: it continues." in capsys.readouterr().err
