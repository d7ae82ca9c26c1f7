"""Each of ten dangerous mistakes makes a test fail; `make mutants` tries small changes by the thousand."""

import json
import os
import subprocess
import sys

import pytest

from tests.mutation.equivalent import read_list
from tests.mutation.forked import ROOT
from tests.mutation.mistakes import MISTAKES
from tests.mutation.mutants import all_mutants


@pytest.mark.full
def test_every_mistake_is_noticed() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.mutation.mistakes"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(MISTAKES, 1)


@pytest.mark.full
def test_every_equivalent_mutant_of_the_list_is_one() -> None:
    assert read_list() - {mutant.key for mutant in all_mutants()} == set()
