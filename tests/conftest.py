"""What all tests share: one thread, the real CIFAR-10, fetched once, and a tiny stand-in for it."""

import hashlib
import os
from pathlib import Path

import pytest
import torch
from rich.progress import Progress

from bagcert.data import cifar10
from bagcert.data.base import data_folder
from bagcert.data.cifar10_sources import TARBALL, fetch_cifar10
from bagcert.errors import UsageError
from tests.data.tiny_cifar10 import TINY_RECORDS, TinyCifar10, make_tiny_cifar10


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Two threads on busy cores spin for each other: a step of a millisecond took one of a second."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def cifar10_dir() -> Path:
    """A data folder with the real CIFAR-10: fetched by our own code on first use, one process at a time."""
    try:
        fetch_cifar10(None, Progress(disable=True))
    except UsageError as error:
        pytest.skip(str(error))
    return data_folder()


@pytest.fixture
def tiny_cifar10(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TinyCifar10:
    """Make the tiny batches the official ones; no npm, no server and no other data folder can be reached."""
    tiny = make_tiny_cifar10()
    for name, content in tiny.batches.items():
        monkeypatch.setitem(cifar10.MD5, name, hashlib.md5(content).hexdigest())
    monkeypatch.setattr(cifar10, "BATCH_BYTES", TINY_RECORDS * cifar10.RECORD)
    monkeypatch.setattr("bagcert.data.cifar10_sources.TARBALL_MD5", hashlib.md5(tiny.tarball()).hexdigest())
    monkeypatch.setattr(  # a refused port
        "bagcert.data.cifar10_sources.URL", f"http://127.0.0.1:9/{TARBALL}"
    )  # the discard port: refused
    monkeypatch.setenv("BAGCERT_DATA", str(tmp_path / "usual"))
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", os.environ.get("no_proxy", "") + ",127.0.0.1")
    return tiny
