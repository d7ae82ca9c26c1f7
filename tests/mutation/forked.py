"""Run tests against changed copies of the package, each in a fork of a process that has the slow imports behind it."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT = 1800  # seconds for one copy; the machine may be busy


@dataclass(frozen=True)
class Change:
    """One file of the package with another text, and the tests that should notice."""

    path: Path  # from the root of the repository
    text: str
    tests: tuple[str, ...]


def exit_codes(changes: Iterable[Change], children: int) -> Iterator[tuple[Change, int]]:
    """pytest's exit code for each change, as they end: 0 says that all passed, less than 0 that it took too long.

    Nobody may have imported bagcert into this process.
    """
    import pytest  # noqa: F401
    import torch  # noqa: F401

    assert "bagcert" not in sys.modules
    running: dict[int, tuple[Change, str, float]] = {}
    waiting = iter(changes)
    change = next(waiting, None)
    while running or change is not None:
        if change is not None and len(running) < children:
            folder = tempfile.mkdtemp()
            running[start(change, folder)] = change, folder, time.monotonic() + LIMIT
            change = next(waiting, None)
            continue
        for number, (_, _, deadline) in running.items():
            if time.monotonic() > deadline:
                os.kill(number, 9)
        number, status = os.waitpid(-1, os.WNOHANG)
        if number == 0:
            time.sleep(0.02)
            continue
        ended, folder, _ = running.pop(number)
        shutil.rmtree(folder)
        yield ended, os.waitstatus_to_exitcode(status)


def start(change: Change, folder: str) -> int:
    """Fork a process that runs the tests on a changed copy; its number."""
    source = Path(folder, "src")
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("*.safetensors"))
    Path(folder, change.path).write_text(change.text, "utf-8")
    number = os.fork()
    if number:
        return number
    code = 99  # neither passed nor failed
    try:
        code = run(source, change.tests)
    finally:
        os._exit(code)


def run(source: Path, tests: tuple[str, ...]) -> int:
    import pytest

    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    os.chdir(ROOT)
    sys.path[:0] = [str(source), str(ROOT)]
    code = 0
    for test in tests:  # one after the other: most changes are noticed before most files would be collected
        code = code or int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]))
    assert Path(sys.modules["bagcert"].__file__ or "").is_relative_to(source)
    return code
