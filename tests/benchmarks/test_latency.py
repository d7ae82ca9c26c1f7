"""A single picture is timed by every program; of a CPU only ratios are kept."""

from pathlib import Path
from typing import Any

import pytest
import torch

import bagcert
from bagcert.files import read_json
from benchmarks import latency, speed
from benchmarks.latency import WARM_UP, waiting, with_ratios
from tests.data.tiny_cifar10 import TinyCifar10
from tests.studies.calling import call

ROWS = [
    {"model": "a", "program": "exact", "p50_ms": 8.0, "p99_ms": 10.0},
    {"model": "a", "program": "fast", "p50_ms": 2.0, "p99_ms": 2.5},
    {"model": "b", "program": "fast", "p50_ms": 1.0, "p99_ms": 1.0},
    {"model": "b", "program": "exact", "p50_ms": 3.0, "p99_ms": 3.3},
]


def test_each_model_is_compared_with_its_exact_program() -> None:
    found = with_ratios(ROWS, absolute=False)
    assert found[1] == {"model": "a", "program": "fast", "sooner_than_exact": 4.0, "p99_of_p50": 1.25}
    assert [row["sooner_than_exact"] for row in found] == [1.0, 4.0, 3.0, 1.0]
    assert with_ratios(ROWS, absolute=True)[1] == found[1] | {"p50_ms": 2.0, "p99_ms": 2.5}


def test_quantiles_are_of_the_calls_after_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def times(work: Any, device: torch.device, calls: int) -> list[float]:
        work()
        asked.append(calls)
        return [9.0] * WARM_UP + [number / 1000 for number in range(101)]

    monkeypatch.setattr(latency, "times", times)
    found = waiting(bagcert.load("cifar10-small", program="fast"), torch.rand(1, 3, 32, 32), 101)
    assert asked == [WARM_UP + 101] and found == {"p50_ms": 50.0, "p99_ms": 99.0}


def test_the_command_times_a_model_by_every_program(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_cifar10.write(tmp_path)
    out, options = tmp_path / "out.json", ("--device", "cpu", "--calls", "2", "--data-dir", str(tmp_path))
    assert call(monkeypatch, latency.latency, *options, "--model", "cifar10-small", "--out", str(out)) == 0
    found = read_json(out)
    assert [row["program"] for row in found["models"]] == list(found["programs"]) == ["exact", "fast"]
    assert all(row["sooner_than_exact"] > 0 and "p50_ms" not in row for row in found["models"])
    assert call(monkeypatch, latency.latency, *options, "--model", "cifar10-smal") == 2
    assert "Did you mean 'cifar10-small'?" in capsys.readouterr().err


def test_the_page_says_milliseconds_if_they_are_kept() -> None:
    for absolute, usual in ((False, "–"), (True, "2 ms")):
        _, _, line, *_ = speed.latency_lines([{"device": "NVIDIA H200", "models": with_ratios(ROWS, absolute)}])
        assert line == ("`a`", "fast", "4x", usual, "1.25 x p50", "NVIDIA H200")
