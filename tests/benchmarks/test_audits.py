"""The table of audits in docs/deploy.md is that of the stored audits."""

import json
from pathlib import Path

import pytest
import torch

from bagcert.program import Program
from bagcert.stored_models import card, shipped_models
from benchmarks import audits
from studies.common.results import provenance


def test_the_table_is_that_of_the_stored_audits() -> None:
    page = audits.PAGE.read_text(encoding="utf-8")
    assert audits.filled(page) == page, "run python -m benchmarks.audits --table-only"


def test_audits_of_the_same_call_that_held_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    facts = {"command": "this", "device": "a CPU", "threads": 1, "versions": {"bagcert": "1", "torch": "2"}}
    assert audits.kept("cpu", facts) == {}
    entry = {"model": "one", "weights_sha256": "of one", "program": "eager", "passed": True}
    entry |= {"versions": {"bagcert": "1", "torch": "2"}}
    broken = entry | {"program": "compiled", "passed": False}
    audits.results_file("cpu").write_text(json.dumps({**facts, "audits": [entry, broken]}), encoding="utf-8")
    for versions in ({"bagcert": "1", "torch": "2"}, {"bagcert": "2", "torch": "2"}):
        assert audits.kept("cpu", facts | {"versions": versions}) == {("one", "of one", "eager"): entry}
    for other in ({"threads": 2}, {"command": "that"}, {"versions": {"bagcert": "1", "torch": "3"}}):
        assert audits.kept("cpu", facts | other) == {}


def test_a_violation_is_named_and_other_weights_and_programs_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    first, other, *_, last = shipped_models()
    words, program = audits.PROGRAMS["cpu"][1]
    checks = [{"name": "locality", "passed": False}, {"name": "order", "passed": True}]
    entry = {"checks": checks, "cure": "batches of 16", "guard_band": {"to_eager_torch": "--slack 3"}}
    stored = [
        {**entry, "model": first, "program": str(program), "weights_sha256": card(first)["weights_sha256"]},
        {**entry, "model": other, "program": str(program), "weights_sha256": "of an older model"},
        {**entry, "model": last, "program": "by another library", "weights_sha256": card(last)["weights_sha256"]},
    ]
    audits.results_file("cpu").write_text(json.dumps({"device": "a CPU", "audits": stored}), encoding="utf-8")
    lines = {line[0]: line[3:] for line in audits.table() if line[2] == words}
    assert lines[f"`{first}`"] == ("locality; cured by: batches of 16", "`--slack 3`")
    assert lines[f"`{other}`"] == lines[f"`{last}`"] == ("not audited yet", "")


def test_a_program_that_cannot_run_is_a_line_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile may fail with errors of its own; the audits of the other programs still count."""

    def fail(*_: object) -> object:
        raise AssertionError("expected size 192==192\nand a long trace")

    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    monkeypatch.setattr(audits, "audit", fail)
    monkeypatch.setattr(audits, "clean_images", lambda *_: None)
    model = next(iter(shipped_models()))
    words, program = audits.PROGRAMS["cpu"][1]
    entry = audits.audited(model, program, 2, None)
    assert not entry["passed"]
    assert audits.verdict(entry) == "cannot run (expected size 192==192)"
    audits.results_file("cpu").write_text(json.dumps({"device": "a CPU", "audits": [entry]}), encoding="utf-8")
    assert (f"`{model}`", "a CPU", words, "cannot run", "") in audits.table()


def test_what_was_audited_is_stored_before_the_next_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[dict[str, object]] = []

    def once(model: str, program: Program, *_: object) -> dict[str, object]:
        if done:
            raise KeyboardInterrupt
        facts = {"model": model, "program": str(program), "weights_sha256": "", "passed": False}
        done.append({**facts, "cannot_run": "no compiler"})
        return done[-1]

    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    monkeypatch.setattr(audits, "audited", once)
    with pytest.raises(KeyboardInterrupt):
        audits.main("cpu")
    assert json.loads(audits.results_file("cpu").read_text(encoding="utf-8"))["audits"] == done


def test_what_is_kept_outlives_an_audit_that_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    program, model = audits.PROGRAMS["cpu"][-1][1], list(shipped_models())[-1]
    facts = provenance("benchmarks.audits", ["--device", "cpu", "--images", 4], torch.device("cpu"))
    entry = {"model": model, "program": str(program), "weights_sha256": card(model)["weights_sha256"]}
    held = entry | {"passed": True, "versions": facts["versions"]}
    audits.results_file("cpu").write_text(json.dumps({**facts, "audits": [held]}), encoding="utf-8")
    calls: list[str] = []

    def once(name: str, *_: object) -> dict[str, object]:
        calls.append(name)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return {"model": name, "program": "", "weights_sha256": "", "passed": False, "cannot_run": "no compiler"}

    monkeypatch.setattr(audits, "audited", once)
    with pytest.raises(KeyboardInterrupt):
        audits.main("cpu", keep=True)
    first, last = json.loads(audits.results_file("cpu").read_text(encoding="utf-8"))["audits"]
    assert first["model"] == calls[0] and last == held
