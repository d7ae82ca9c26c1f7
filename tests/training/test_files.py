import errno
import gzip
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_json, read_lines, read_tensors, write_atomically


def test_tensors_and_facts_come_back(tmp_path: Path) -> None:
    tensors = {"a/b": torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last), "n": torch.tensor(3)}
    write_atomically(tmp_path / "new/x.safetensors", pack_tensors(tensors, {"step": 3, "rate": 0.1}))
    read, facts = read_tensors(tmp_path / "new/x.safetensors")
    torch.testing.assert_close(read, tensors)
    assert facts == {"step": 3, "rate": 0.1}


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(
        UsageError, match=r"expected to write .*file, got: No space left on device; what was there is kept"
    ):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_disk_that_fills_up_is_one_line(tmp_path: Path) -> None:
    """By a limit on the size of files, in a process of its own: what a buffer still holds must not raise on closing."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from bagcert.files import append\n"
        "from bagcert.errors import UsageError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "path = Path(sys.argv[1]); append(path, ['row\\n'] * 1000)\n"
        "try: append(path, ['row\\n'] * 1000)\n"
        "except UsageError as error: print(error)\n"
    )
    path = tmp_path / "rows.jsonl"
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert f"expected to write {path}, got: File too large; the rows so far are kept: make room" in done.stdout
    assert path.read_text().startswith("row\n" * 1000) and not done.stderr


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match="expected to write"):
        write_atomically(tmp_path / "run/recipe.toml", b"")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100, b"\x80\x04\x95pickle"])
def test_foreign_bytes_are_no_tensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match="expected a whole safetensors file, got"):
        read_tensors(tmp_path / "x")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content = pack_tensors({"a": torch.arange(4)}, {"step": 1})
    for length in range(len(content)):
        (tmp_path / "x").write_bytes(content[:length])
        with pytest.raises(UsageError, match="expected a whole safetensors file"):
            read_tensors(tmp_path / "x")


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff"])
def test_json_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match=r"expected (a )?JSON"):
        read_json(tmp_path / "x")


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_lines_within_the_limits(tmp_path: Path, name: str) -> None:
    """Each limit is met exactly; one less is too few. A last line without an end is handed out as it is."""
    content, path = "äb\n\nc".encode(), tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_lines(path, most_bytes=6, most_lines=3, longest=4)) == ["äb\n", "\n", "c"]
    for limits, words in (
        ((5, 3, 4), "more text than"),
        ((6, 2, 4), "more text than"),
        ((6, 3, 3), "a line of more than 3 bytes"),
    ):
        with pytest.raises(ValueError, match=words):
            list(read_lines(path, *limits))


def test_a_gzipped_line_without_end_is_not_held(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(2**26)))
    tracemalloc.start()
    with pytest.raises(ValueError, match="a line of more than 1024 bytes"):
        list(read_lines(path, most_bytes=2**30, most_lines=10, longest=2**10))
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()
