"""Run tests against changed copies of the package, each in a fork of a process that has the slow imports behind it."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
QUIET = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
LIMIT = 1800.0  # seconds for one change; the machine may be busy
BROKEN = 99  # the exit code of a fork that neither passed nor failed
Job = TypeVar("Job")


def forked(
    jobs: Iterable[Job], run: Callable[[Job], int], children: int, limit: float = LIMIT
) -> Iterator[tuple[Job, int]]:
    """The exit code of each job's own process, as they end; less than 0 says that it took too long."""
    running: dict[int, tuple[Job, float]] = {}
    waiting = iter(jobs)
    job = next(waiting, None)
    while running or job is not None:
        if job is not None and len(running) < children:
            running[fork(run, job)] = job, time.monotonic() + limit
            job = next(waiting, None)
            continue
        for number, (_, deadline) in running.items():
            if time.monotonic() > deadline:
                os.kill(number, 9)
        number, status = os.waitpid(-1, os.WNOHANG)
        if number == 0:
            time.sleep(0.005)
            continue
        yield running.pop(number)[0], os.waitstatus_to_exitcode(status)


def fork(run: Callable[[Job], int], job: Job) -> int:
    """The number of a silent process that ends with what `run` returns."""
    number = os.fork()
    if number:
        return number
    code = BROKEN
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        code = run(job)
    finally:
        os._exit(code)


@dataclass(frozen=True)
class Change:
    """One file of the package with another text, and the tests that should notice."""

    path: Path  # from the root of the repository
    text: str
    tests: tuple[str, ...]


def exit_codes(changes: Iterable[Change], children: int, limit: float = LIMIT) -> Iterator[tuple[Change, int]]:
    """pytest's exit code for each change, as they end: 0 says that all passed.

    Nobody may have imported bagcert into this process.
    """
    import pytest  # noqa: F401
    import torch  # noqa: F401

    assert "bagcert" not in sys.modules
    return forked(changes, run_on_copy, children, limit)


def run_on_copy(change: Change) -> int:
    """pytest's exit code on a changed copy of the package."""
    import pytest

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "src")
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.safetensors"))
        Path(folder, change.path).write_text(change.text, "utf-8")
        os.chdir(ROOT)
        sys.path[:0] = [str(source), str(ROOT)]
        files = dict.fromkeys(test.partition("::")[0] for test in change.tests)
        code = int(pytest.main(["-x", *QUIET, *files], plugins=[InOrder(change.tests)]))
        assert Path(sys.modules["bagcert"].__file__ or "").is_relative_to(source)
    return code


class InOrder:
    """A plugin of pytest: just these tests, in this order; a test without parameters is all its cases."""

    def __init__(self, tests: Iterable[str]) -> None:
        self.tests = tests

    def pytest_collection_modifyitems(self, items: list) -> None:  # type: ignore[type-arg]
        named: dict[str, list] = {}  # type: ignore[type-arg]
        for item in items:
            for name in dict.fromkeys((item.nodeid, item.nodeid.partition("[")[0])):
                named.setdefault(name, []).append(item)
        items[:] = [item for test in self.tests for item in named.get(test, ())]
