"""`torchrun -m bagcert certify`: two processes that are killed and called again write the rows of one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import bagcert
from bagcert.rows import write

pytestmark = pytest.mark.slow

CODE = """
import torch
from torch import nn

def pooled():
    return nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
"""
IMAGES = write.BATCH + 7  # a whole batch, and one that two processes cannot share evenly


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "my_classifiers.py").write_text(CODE, encoding="utf-8")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    bagcert.cover(network.eval(), 8, 10, "1x1", masks=2, channels=1, at_once=16).save(tmp_path / "mine")
    return tmp_path


def certify(folder: Path, program: list[str], out: str, **environment: str) -> subprocess.CompletedProcess[str]:
    words = f"certify mine --network my_classifiers:pooled --data digits --limit {IMAGES} --scores --out {out}.jsonl"
    return subprocess.run(
        [sys.executable, *program, *words.split(), "--rule", "unanimous"],
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_covered_network_has_the_same_rows_from_two_processes(folder: Path) -> None:
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    two = [*torchrun, str(Path(__file__).with_name("killed_ranks.py"))]
    one = certify(folder, ["-m", "bagcert"], "one")
    assert one.returncode == 0, one.stderr
    expected = (folder / "one.jsonl").read_bytes()
    assert expected.count(b"\n") == IMAGES and b'"certified":true' in expected

    killed = certify(folder, two, "two", KILL_AFTER="1")
    assert killed.returncode != 0
    part = (folder / "two.jsonl").read_bytes()
    assert part.count(b"\n") == write.BATCH and '"rows_sha256"' not in (folder / "two.meta.json").read_text()
    again = certify(folder, two, "two")
    assert again.returncode == 0 and again.stdout.count("unanimous") == one.stdout.count("unanimous"), again.stderr
    assert (folder / "two.jsonl").read_bytes() == expected
    assert (folder / "two.meta.json").read_text() == (folder / "one.meta.json").read_text()
