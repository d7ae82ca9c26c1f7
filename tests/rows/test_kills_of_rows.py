"""Rows that are written, killed, cut off and continued in any order: no batch that was stored is lost or changed."""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bagcert.errors import UsageError
from bagcert.rows.format import Meta, Record, meta_path, read_meta, read_records, to_line, write_meta
from bagcert.rows.resume import append_records, finish, resume

IMAGES, BATCH = 7, 3
RULES = ("two-mask", "every-region")
HEADER = {"model": "m", "images": IMAGES, "evaluations": [{"patch": "1x1", "rule": each} for each in RULES]}
RECORDS = [Record("1x1", each, image, image % 3, 1, image % 2 == 0) for image in range(IMAGES) for each in RULES]
WHOLE = "".join(map(to_line, RECORDS)).encode()


class Killed(BaseException):
    """The process ends here; nothing after it runs."""


@contextmanager
def disk(kept: int, error: BaseException, after: int = 0) -> Iterator[None]:
    """The write that is synced next, or `after` more, keeps so many of its last 64 bytes, and then this happens."""
    sync, left = os.fsync, [after]

    def failing(descriptor: int) -> None:
        if left[0]:
            left[0] -= 1
            return sync(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):  # a folder loses nothing
            os.truncate(descriptor, max(0, found.st_size - 64) + min(kept, found.st_size, 64))
        raise error

    with patch("bagcert.files.os.fsync", failing):
        yield


class Writing(RuleBasedStateMachine):
    """One command that certifies, called again and again; `stored` images are promised to be there."""

    @initialize()
    def empty(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "rows.jsonl"
        self.stored, self.running, self.done = 0, False, False

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def batch(self) -> list[Record]:
        return RECORDS[self.stored * len(RULES) : (self.stored + BATCH) * len(RULES)]

    @precondition(lambda self: not self.running)
    @rule()
    def call(self) -> None:
        found = resume(self.path, HEADER, BATCH)
        assert found >= self.stored, "what was stored is there"
        assert found == IMAGES or found % BATCH == 0
        self.stored, self.running = found, not self.done

    @precondition(lambda self: not self.running)
    @rule(kept=st.integers(0, 64), after=st.integers(0, 4), killed=st.booleans())
    def call_in_vain(self, kept: int, after: int, killed: bool) -> None:
        """The call itself may be killed, or find the disk full, at any of its writes."""
        error = Killed() if killed else OSError(28, "No space left on device")
        with disk(kept, error, after):
            try:
                resume(self.path, HEADER, BATCH)
            except (Killed, UsageError):
                return

    @precondition(lambda self: self.running and self.stored < IMAGES)
    @rule()
    def store(self) -> None:
        append_records(self.path, self.batch())
        self.stored = min(IMAGES, self.stored + BATCH)

    @precondition(lambda self: self.running and self.stored < IMAGES)
    @rule(kept=st.integers(0, 64), killed=st.booleans())
    def store_in_vain(self, kept: int, killed: bool) -> None:
        expected = Killed if killed else UsageError
        with disk(kept, Killed() if killed else OSError(28, "No space left on device")), pytest.raises(expected):
            append_records(self.path, self.batch())
        self.running = False

    @precondition(lambda self: self.running)
    @rule()
    def kill(self) -> None:
        self.running = False

    @precondition(lambda self: self.running and self.stored == IMAGES)
    @rule()
    def end(self) -> None:
        finish(self.path, [])
        self.running, self.done = False, True

    @precondition(lambda self: self.running and self.stored == IMAGES)
    @rule(kept=st.integers(0, 64))
    def end_in_vain(self, kept: int) -> None:
        with disk(kept, OSError(28, "No space left on device")), pytest.raises(UsageError, match="Cannot write"):
            finish(self.path, [])
        self.running = False

    @precondition(lambda self: not self.running)
    @rule()
    def leave_a_part(self) -> None:
        """What a kill between writing and renaming leaves."""
        for name in (self.path.name, meta_path(self.path).name):
            (self.folder / f"{name}.0123456789abcdef.part").write_bytes(WHOLE[:50])

    @precondition(lambda self: not self.running and not self.path.exists() and not meta_path(self.path).exists())
    @rule()
    def kill_between_the_two_files(self) -> None:
        write_meta(self.path, Meta(HEADER))

    @precondition(lambda self: not self.running and meta_path(self.path).exists())
    @rule()
    def ask_something_else(self) -> None:
        before = self.path.read_bytes() if self.path.exists() else None
        with pytest.raises(UsageError, match="holds rows that differ in model"):
            resume(self.path, {**HEADER, "model": "another"}, BATCH)
        assert (self.path.read_bytes() if self.path.exists() else None) == before

    @invariant()
    def what_is_there_is_a_beginning_of_the_whole(self) -> None:
        if self.path.exists() and self.stored:
            content = self.path.read_bytes()
            assert content.startswith(WHOLE[: sum(len(to_line(each)) for each in RECORDS[: self.stored * len(RULES)])])
            assert WHOLE.startswith(content)
        if self.done:
            assert list(read_records(self.path, read_meta(self.path))) == RECORDS


TestWriting = Writing.TestCase
TestWriting.settings = settings(TestWriting.settings, max_examples=40, stateful_step_count=16, deadline=None)
