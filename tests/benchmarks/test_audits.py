"""The table of audits in docs/deploy.md is that of the stored audits."""

import json
from pathlib import Path

import pytest

from bagcert.defenses.load import card, shipped_models
from benchmarks import audits


def test_the_table_is_that_of_the_stored_audits() -> None:
    page = audits.PAGE.read_text(encoding="utf-8")
    assert audits.filled(page) == page, "run python -m benchmarks.audits --table-only"


def test_a_violation_is_named_and_other_weights_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audits, "RESULTS", tmp_path)
    first, other = shipped_models()
    words = [name for name, _ in audits.PROGRAMS["cpu"]]
    checks = [{"name": "locality", "passed": False}, {"name": "order", "passed": True}]
    entry = {"checks": checks, "cure": "batches of 16", "guard_band": {"to_eager_torch": "--slack 3"}}
    stored = [
        {**entry, "model": first, "words": words[1], "weights_sha256": card(first)["weights_sha256"]},
        {**entry, "model": other, "words": words[1], "weights_sha256": "of an older model"},
    ]
    audits.results_file("cpu").write_text(json.dumps({"device": "a CPU", "audits": stored}), encoding="utf-8")
    lines = {line[::2][:2]: line for line in audits.table() if line[2] == words[1]}
    assert lines[f"`{first}`", words[1]][3:] == ("locality; cured by: batches of 16", "`--slack 3`")
    assert lines[f"`{other}`", words[1]][3:] == ("not audited yet", "")
