"""`--program`: rows name what computed them, and an audit asks about the very same thing."""

import json
from pathlib import Path

import pytest

from bagcert.rows.certified import read_rows
from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run

EXACT = "torch, cpu, float32, eager, channels_last, batches of 16"
FAST = "torch, cpu, bfloat16, eager, channels_last, folded batch norm, batches of 1"


@pytest.fixture(autouse=True)
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_digit_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)


def test_rows_name_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for program in ("exact", "fast"):
        options = ("--limit", "32", "--scores", "--program", program, "--out", f"{program}.jsonl")
        assert call(monkeypatch, "certify", "run", *options) == 0
        assert call(monkeypatch, "verify", f"{program}.jsonl") == 0
    exact, fast = read_rows(Path("exact.jsonl")), read_rows(Path("fast.jsonl"))
    assert fast.header["arithmetic"] == FAST and fast.header["instructions"]
    assert exact.header["arithmetic"] == EXACT
    capsys.readouterr()
    assert call(monkeypatch, "certify", "run", "--limit", "32", "--scores", "--out", "fast.jsonl") == 2
    assert "fast.jsonl" in capsys.readouterr().err  # rows of another program are not continued


def test_attacks_take_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "attack", "run", "--limit", "4", "--steps", "2", "--program", "fast", "--json") == 0
    assert json.loads(capsys.readouterr().out)["flips_of_certified"] == 0
    assert call(monkeypatch, "attack", "run", "--program", "fats") == 2
    assert "Unknown program 'fats'. Did you mean 'fast'? Known: exact, fast." in capsys.readouterr().err


@pytest.mark.slow
def test_an_audit_covers_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "audit", "run", "--images", "4", "--program", "fast", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] and found["program"] == FAST
    for option in ("--compile", "--dtype=bfloat16", "--backend=onnx"):
        assert call(monkeypatch, "audit", "run", "--program", "fast", option) == 2
        assert "The program fast sets backend, dtype and all else by itself." in capsys.readouterr().err
