"""One process at a time in a folder."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait until no other process holds the folder; the system lets go when a holder dies. No lock on Windows."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        if sys.platform != "win32":
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
