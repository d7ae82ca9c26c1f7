"""Run a study or a benchmark inside the test's process."""

from collections.abc import Callable
from typing import Any

import pytest

from studies.common import commands


def call(monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any], *arguments: str) -> int:
    """The exit code of a command with these arguments."""
    monkeypatch.setattr("sys.argv", [command.__name__, *arguments])
    with pytest.raises(SystemExit) as ended:
        commands.call(command)
    return int(ended.value.code or 0)
