"""Many clients at once get the same answers as each alone: a short version of `make load`."""

import subprocess
import sys

import pytest

from bagcert.server.model import to_images
from benchmarks.serving.clients import Tally, drive, once_each
from benchmarks.serving.command import expected
from tests.server.conftest import file_of, photos, small_model


@pytest.mark.slow
def test_no_answer_is_lost_or_mixed_up() -> None:
    wanted = expected(small_model().defense, to_images(photos()))
    files = [file_of(each) for each in photos()]
    tally, mixed = Tally(), Tally()
    command = [sys.executable, "-m", "tests.server.small_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            drive(url, files, wanted, 16, once_each(200), tally)
            drive(url, files, wanted[::-1], 4, once_each(20), mixed)
        finally:
            server.terminate()
    assert (tally.right, tally.wrong, tally.lost) == (200, [], [])
    assert mixed.wrong, "a comparison that finds nothing would prove nothing"
