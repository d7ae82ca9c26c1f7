"""Run the command line inside the test's process."""

import pytest

from bagcert.cli.main import main


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `bagcert ...`."""
    monkeypatch.setattr("sys.argv", ["bagcert", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)
