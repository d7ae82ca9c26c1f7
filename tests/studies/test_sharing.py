"""Processes share the jobs, say which failed, and stop in time."""

from pathlib import Path

import pytest

from studies.common.sharing import supervise
from studies.rivals import runs as rivals_runs
from studies.rivals.scale import TINY
from studies.sweep import runs as sweep_runs


@pytest.mark.slow
def test_a_job_that_fails_does_not_stop_the_next(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    places = (tmp_path / "results", tmp_path / "work", tmp_path / "nothing")
    rivals = rivals_runs.Bench(TINY, *places)
    supervise(rivals_runs.prepare, [["ds-column", "mask-ds"], ["ibp"]], rivals, 1, deadline=float("inf"))
    sweep = sweep_runs.Bench(sweep_runs.TINY, *places)
    supervise(sweep_runs.carry_out, sweep_runs.matching(["rf5-m0.25"]), sweep, 1, deadline=float("inf"))
    lines = capfd.readouterr().out.splitlines()
    names = [line.split(": failed: CIFAR-10 is not in")[0] for line in lines]
    assert names == ["ds-column, mask-ds", "ibp", "rf5-m0.25"]
    supervise(rivals_runs.prepare, [["ds-row"]], rivals, 1, deadline=0.0)
    assert not capfd.readouterr().out
