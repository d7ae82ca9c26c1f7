"""Rows of shipped models, here of a small run on digits."""

from pathlib import Path

import pytest

from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.scorers.weights import load_scorer
from bagcert.stored_models import card
from bagcert.training.run import RunFolder, save_run
from studies.common.results import RESULTS
from studies.figures.plan import bound_rows, shape_rows
from studies.shipped import command as shipped
from tests.rows.digit_runs import save_digit_run


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(shipped, "SQUARES", ("1x1", "2x2"))
    monkeypatch.setattr(shipped, "RECTANGLES", ("1x4",))
    monkeypatch.setattr(shipped, "BOUND_PATCHES", ("1x1", "2x2"))


def test_shapes_are_certified_by_all_conditions_once() -> None:
    save_digit_run(Path("run"))
    shipped.shapes(["run"], images=30)
    path = shape_rows(RESULTS, "run")
    rows = read_rows(path)
    assert {entry.patch for entry in rows.results} == {"1x1", "2x2", "1x4"}
    assert {entry.rule for entry in rows.results} == {"largest-region", "every-region", "two-mask"}
    written = path.stat().st_mtime_ns
    shipped.shapes(["run"], images=30)
    assert path.stat().st_mtime_ns == written, "rows of the same weights are kept"
    scorer, facts = load_scorer(Path("run"))
    changed = {name: 2 * value for name, value in scorer.state_dict().items()}
    RunFolder(Path("run")).config.unlink()
    save_run(RunFolder(Path("run")), scorer, changed, {key: facts[key] for key in ("classes", "data", "patch", "rule")})
    shipped.shapes(["run"], images=30)
    assert read_rows(path).header["weights_sha256"] == card("run")["weights_sha256"] != facts["weights_sha256"]


def test_bounds_enclose_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    save_digit_run(Path("run"))
    shipped.bounds(["run"], images=4, patch=["1x1"])
    assert not bound_rows(RESULTS, "run", "2x2").exists()
    shipped.bounds(["run"], images=4)
    assert bound_rows(RESULTS, "run", "2x2").exists(), "all patches where none is named"
    rows = read_attack_rows(bound_rows(RESULTS, "run", "1x1"))
    assert rows.certified_accuracy <= rows.attacked_accuracy <= rows.clean_accuracy
    assert capsys.readouterr().out.startswith("run, 1x1: certified ")
