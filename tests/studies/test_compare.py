import json
from pathlib import Path

import pytest

from studies.rivals.compare import compare
from studies.rivals.plan import RIVALS
from tests.studies.calling import call
from tests.studies.comparison_rows import fill, fill_rival

pytestmark = pytest.mark.slow


def test_tables_are_printed_and_what_is_missing_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill_rival(tmp_path, RIVALS[0])
    assert call(monkeypatch, compare, "--results", str(tmp_path)) == 0
    printed = capsys.readouterr()
    assert "| `ds-column` | largest-region | 50.00 / 25.00 (200 images) |" in printed.out
    assert printed.err.startswith("not run yet: ds-row, ") and "python -m studies rivals run" in printed.err


def test_json_holds_all_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path)
    assert call(monkeypatch, compare, "--json", "--results", str(tmp_path)) == 0
    found = {entry["defense"]: entry for entry in json.loads(capsys.readouterr().out)["defenses"]}
    assert found["cifar10-small"]["ours"] and found["cifar10-small"]["cost"] is None
    column = found["ds-column"]
    assert len(column["results"]) == 15 and column["cost"]["ties"] == {"rule": "lower index wins", "added": 7}
    first = {"patch": "5x5", "rule": "largest-region", "images": 200, "clean_accuracy": 0.5, "certified_accuracy": 0.25}
    assert column["results"][0] == first
    assert column["attack"]["attacked_accuracy"] == 0.5 and column["attack"]["flips_of_certified"] == 0


def test_a_page_is_begun_and_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, results = tmp_path / "docs", tmp_path / "results"
    results.mkdir()
    assert call(monkeypatch, compare, "--results", str(results), "--out", str(out)) == 0
    page = out / "comparison.md"
    assert capsys.readouterr().out.splitlines()[0] == f"wrote {page}"
    text = page.read_text().replace("# Defenses compared", "# My own words")
    assert "| `ibp` | unanimous | not run yet |" in text
    page.write_text(text)
    fill(results)
    leaderboard = out / "leaderboard.md"
    leaderboard.write_text("My standings\n<!-- unchecked -->\n<!-- /unchecked -->\n")
    assert call(monkeypatch, compare, "--results", str(results), "--out", str(out)) == 0
    after = page.read_text()
    assert after.startswith("# My own words") and "| `ibp` | unanimous | 78.00 / 39.00 (200 images) |" in after
    assert "My standings\n<!-- unchecked -->\n| defense |" in leaderboard.read_text()
    assert "| `ibp` | unanimous | 78.00 | 39.00 | 200 | " in leaderboard.read_text()
    assert {path.name for path in (out / "figures").iterdir()} == {"comparison.svg", "comparison.png"}
