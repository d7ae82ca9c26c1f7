"""Two processes train as one does."""

import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from bagcert.distributed import World
from bagcert.files import pack_tensors, read_tensors, write_atomically
from bagcert.scorers.weights import load_scorer
from bagcert.training import RunOptions, load_recipe, train
from bagcert.training.sync import SharedBatchNorm, local_statistics, share_norms

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


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_statistics_by_either_way(compiled: bool, layout: torch.memory_format) -> None:
    values = (100 + torch.randn(4, 5, 6, 7, generator=torch.Generator().manual_seed(0))).contiguous(
        memory_format=layout
    )
    mean, variance = local_statistics(values, compiled)
    channels = values.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean, channels.mean(dim=1).float())
    torch.testing.assert_close(variance, channels.var(dim=1, correction=0).float(), rtol=1e-3, atol=0)


def parts_of_a_norm(rank: int, port: int, folder: Path) -> None:
    """One of two processes: half of a batch through a shared norm, forward and back."""
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    norm = SharedBatchNorm(a_norm(), World(torch.device("cpu"), rank, 2))
    images, factors = (tensor.chunk(2)[rank] for tensor in norm_inputs())
    images.requires_grad_()
    value = norm(images)
    (value * factors).sum().backward()
    assert images.grad is not None and norm.weight.grad is not None and norm.bias.grad is not None
    found = {"value": value.detach(), "images": images.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
    write_atomically(folder / f"{rank}", pack_tensors(found | dict(norm.named_buffers()), {}))
    dist.destroy_process_group()


def a_norm() -> nn.BatchNorm2d:
    torch.manual_seed(1)
    norm = nn.BatchNorm2d(5)
    nn.init.normal_(norm.weight)
    return norm.train()


def norm_inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(2)
    images = torch.randn(6, 5, 4, 3) + torch.arange(6)[:, None, None, None]  # the halves differ in their means
    return images, torch.randn(6, 5, 4, 3)


@pytest.mark.slow
def test_two_halves_of_a_batch_have_the_norm_and_the_gradients_of_the_whole(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spawn(parts_of_a_norm, (port, tmp_path), nprocs=2)  # type: ignore[no-untyped-call]
    parts = [read_tensors(tmp_path / str(rank))[0] for rank in range(2)]
    norm, (images, factors) = a_norm(), norm_inputs()
    images.requires_grad_()
    value = norm(images)
    (value * factors).sum().backward()
    close = partial(torch.testing.assert_close, rtol=1e-4, atol=1e-5)
    close(torch.cat([part["value"] for part in parts]), value.detach())
    close(torch.cat([part["images"] for part in parts]), images.grad)
    for name, whole in (("weight", norm.weight.grad), ("bias", norm.bias.grad)):
        close(parts[0][name] + parts[1][name], whole)
    for part in parts:
        torch.testing.assert_close({name: part[name] for name, _ in norm.named_buffers()}, dict(norm.named_buffers()))
