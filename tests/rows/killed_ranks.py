"""`bagcert` under torchrun. KILL_AFTER: after so many batches of rows the first process is killed, without a word."""

import os
import signal
from pathlib import Path

from bagcert.cli.main import main
from bagcert.rows import write
from bagcert.rows.format import Record
from bagcert.rows.resume import append_records

left = [int(os.environ.get("KILL_AFTER", "-1"))]


def append_and_die(path: Path, records: list[Record]) -> None:
    append_records(path, records)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)


vars(write)["append_records"] = append_and_die
vars(write)["BATCH"] //= 2  # of each of two processes: together they take as many images at a time as one does
main()
