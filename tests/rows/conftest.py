from pathlib import Path

import pytest

from tests.rows.digit_runs import save_digit_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on 8x8 digits that votes."""
    return save_digit_run(tmp_path / "run")
