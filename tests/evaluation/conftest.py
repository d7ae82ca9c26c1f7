from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.evaluation.digit_runs import save_digit_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run on 8x8 digits that votes."""
    return save_digit_run(tmp_path / "run")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads on busy cores spin for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
