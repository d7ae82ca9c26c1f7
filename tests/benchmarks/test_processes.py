"""What docs/deploy.md says of several processes is what was measured, and losses are counted right."""

import json
from pathlib import Path

import pytest
import torch

from bagcert.distributed import World
from benchmarks.processes import command, worker


def test_the_table_is_that_of_the_stored_results() -> None:
    page = command.PAGE.read_text(encoding="utf-8")
    assert command.filled(page) == page, "run python -m benchmarks processes"
    found = json.loads(command.RESULTS.read_text(encoding="utf-8"))
    for kind in command.SIZES:
        assert found[kind]["lost"] == command.losses(found[kind]["runs"])
        assert len(found[kind]["runs"]) == found["rounds"]


def test_nothing_is_lost_if_two_take_half_as_long() -> None:
    names = ("one_clock", "two_clock", "apart_clock", "one_processor", "two_processor", "apart_processor")
    ideal, slow = (
        dict(zip(names, values, strict=True))
        for values in ((8.0, 4.0, 4.0, 8.0, 4.0, 4.0), (8.0, 5.0, 4.0, 8.0, 5.0, 4.0))
    )
    assert set(command.losses([ideal]).values()) == {0}
    assert command.losses([slow]) == dict.fromkeys(command.LOSSES, 0.2)
    assert command.losses([slow, ideal, slow]) == command.losses([slow])


def test_the_worker_takes_steps_of_training(monkeypatch: pytest.MonkeyPatch, cifar10_dir: Path) -> None:
    monkeypatch.setenv("BAGCERT_DATA", str(cifar10_dir))
    monkeypatch.setattr(worker, "STEPS", 1)
    losses = worker.training(World(torch.device("cpu")), 2)()
    assert isinstance(losses, list) and len(losses) == 1 and bool(losses[0].isfinite())
