"""Two processes train as one does."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from bagcert.distributed import World
from bagcert.files import read_tensors
from bagcert.scorers.weights import load_scorer
from bagcert.training import RunOptions, load_recipe, train
from bagcert.training.sync import SharedBatchNorm, share_norms

# Smooth scores and Adam: with votes and Muon's orthogonal steps rounding differences grow fast.
SETTINGS = [
    "network.step=logits",
    "network.paths=2",
    "network.shake=true",
    "network.width=16",
    "loss.name=cross-entropy",
    "optimizer.name=adam",
    "schedule.epochs=2",
    "schedule.warmup_epochs=1",
    "evaluation.times=2",
    "evaluation.rule=two-mask",
    "training.average=0.9",
]


def torchrun(out: Path, *arguments: str, stop: tuple[int, int] | None = None) -> subprocess.CompletedProcess[str]:
    """The digits recipe in two processes, on one thread each."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if stop is not None:
        environment |= {"STOP_RANK": str(stop[0]), "STOP_STEP": str(stop[1])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(Path(__file__).with_name("ranks.py")), "train", "digits", "--out", str(out), *arguments]
    command += [word for setting in SETTINGS for word in ("--set", setting)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def rows(folder: Path, key: str) -> list[float]:
    lines = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [line[key] for line in lines if key in line]


@pytest.mark.slow
def test_two_processes_train_as_one_stop_together_and_resume(tmp_path: Path) -> None:
    stopped = torchrun(tmp_path / "two", stop=(1, 9))
    assert "stopped; to continue: bagcert train digits" in stopped.stdout, stopped.stderr
    assert read_tensors(tmp_path / "two/checkpoint.safetensors")[1]["step"] == 10
    resumed = torchrun(tmp_path / "two", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert "wrote " in resumed.stdout

    first, _ = read_tensors(tmp_path / "two/rank0.safetensors")
    second, _ = read_tensors(tmp_path / "two/rank1.safetensors")
    torch.testing.assert_close(first, second, rtol=0, atol=0)

    train(load_recipe("digits", SETTINGS), RunOptions(tmp_path / "one"))
    assert rows(tmp_path / "two", "loss") == pytest.approx(rows(tmp_path / "one", "loss"), rel=1e-3)
    assert rows(tmp_path / "two", "clean") == pytest.approx(rows(tmp_path / "one", "clean"), abs=0.02)
    assert load_scorer(tmp_path / "two")[0].state_dict().keys() == load_scorer(tmp_path / "one")[0].state_dict().keys()


@pytest.mark.parametrize("training", [True, False])
def test_a_shared_norm_alone_is_batch_norm(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.all_reduce", lambda tensor: None)
    torch.manual_seed(0)
    plain, shared = (nn.Sequential(nn.Conv2d(3, 5, 1), nn.BatchNorm2d(5)) for _ in range(2))
    shared.load_state_dict(plain.state_dict())
    share_norms(shared, World(torch.device("cpu")))
    assert isinstance(shared[1], SharedBatchNorm)
    images = torch.randn(4, 3, 6, 6)
    results = []
    for module in (plain.train(training), shared.train(training)):
        value = module(images)
        (value * images.mean(dim=1, keepdim=True)).sum().backward()
        results.append((value.detach(), [p.grad for p in module.parameters()], module.state_dict()))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
