"""Each of ten dangerous mistakes makes a test fail; `make mutants` tries small changes by the thousand."""

import json
import os
import subprocess
import sys

import pytest

from tests.mutation.forked import ROOT
from tests.mutation.mistakes import MISTAKES


@pytest.mark.slow
def test_every_mistake_is_noticed() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.mutation.mistakes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(MISTAKES, 1)
