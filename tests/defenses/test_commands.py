"""`bagcert certify`, `attack` and `verify` on runs of every recipe."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from studies.rivals.catalog import DEFENSES
from tests.cli.calling import call

pytestmark = pytest.mark.slow

Trained = Callable[[str], Path]


@pytest.mark.parametrize("name", DEFENSES)
def test_every_run_is_certified_and_attacked(
    name: str,
    trained: Trained,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = str(trained(name))
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    limits = ("--limit", "12", "--device", "cpu", "--json")
    assert call(monkeypatch, "certify", run, "--patch", "1x1", "--patch", "1x2", *limits) == 0
    certified = json.loads(capsys.readouterr().out)
    assert [result["patch"] for result in certified["results"]] == ["1x1", "1x2"]
    assert all(result["rule"] == DEFENSES[name].rules[0] for result in certified["results"])
    assert call(monkeypatch, "attack", run, "--steps", "3", "--step-size", "0.5", *limits) == 0
    attacked = json.loads(capsys.readouterr().out)
    assert attacked["flips_of_certified"] == 0
    assert attacked["clean_accuracy"] == certified["results"][0]["clean_accuracy"]
    assert attacked["certified_accuracy"] == certified["results"][0]["certified_accuracy"]
    assert attacked["certified_accuracy"] <= attacked["attacked_accuracy"] <= attacked["clean_accuracy"]


@pytest.mark.parametrize("name", ["ds-column", "ds-block", "mask-ds", "clipped-bagnet"])
def test_stored_scores_are_verified_by_separate_code(
    name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "rows.jsonl")
    rules = [word for rule in DEFENSES[name].rules for word in ("--rule", rule)]
    patches = ("--patch", "1x1", "--patch", "2x3")
    run = str(trained(name))
    assert call(monkeypatch, "certify", run, *rules, *patches, "--limit", "10", "--scores", "--out", out) == 0
    assert call(monkeypatch, "verify", out) == 0
    assert "all hold" in capsys.readouterr().out


@pytest.mark.slow
def test_a_page_shows_what_ablations_a_patch_reaches(
    trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = str(tmp_path / "rows.jsonl")
    assert call(monkeypatch, "certify", str(trained("ds-column")), "--limit", "10", "--scores", "--out", out) == 0
    assert call(monkeypatch, "report", out, "--out", str(tmp_path / "page")) == 0


@pytest.mark.parametrize("name", ["ibp", "patchcleanser"])
def test_stored_views_are_verified_by_separate_code(
    name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For a patch that the network was not trained against, so that the views are not those of its card."""
    out, run = str(tmp_path / "rows.jsonl"), str(trained(name))
    assert call(monkeypatch, "certify", run, "--patch", "2x1", "--limit", "20", "--scores", "--out", out) == 0
    assert call(monkeypatch, "verify", out) == 0
    words = capsys.readouterr().out
    assert "each from a view that hides what the rows name" in words and "all hold" in words
    assert call(monkeypatch, "report", out, "--out", str(tmp_path / "page")) == 0


@pytest.mark.parametrize("name", ["ibp", "patchcleanser"])
def test_views_of_several_patches_are_not_stored_together(
    name: str, trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    patches = ("--patch", "1x1", "--patch", "2x2")
    assert call(monkeypatch, "certify", str(trained(name)), *patches, "--limit", "4", "--scores") == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(
        "bagcert: The views of this network depend on the patch, so --scores takes one patch, not 2."
    )
    assert "\n" not in error
