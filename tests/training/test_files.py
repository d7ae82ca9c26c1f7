import errno
import gzip
import os
import secrets
import stat
import subprocess
import sys
import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_json, read_lines, read_tensors, remove_parts, write_atomically


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
        UsageError, match=r"^Cannot write .*file: No space left on device\. The file that was there is kept\."
    ):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_no_file_is_said_to_be_kept_where_none_was(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    with pytest.raises(UsageError, match=r"^Cannot write .*note.txt/file: File exists\. Make room, or choose another"):
        write_atomically(tmp_path / "note.txt" / "file", b"new")


def test_a_planted_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither under the name that used to be taken, nor under one that was guessed, nor in place of the file."""
    victim, path = tmp_path / "victim", tmp_path / "file"
    victim.write_bytes(b"precious")
    for name in ("file.part", "file"):
        (tmp_path / name).symlink_to(victim)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new" and not path.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["file", "file.part", "victim"]

    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    guessed = tmp_path / "file.guessed.part"
    guessed.symlink_to(victim)
    with pytest.raises(UsageError, match=r"^Cannot write .*file: File exists\. The file that was there is kept\."):
        write_atomically(path, b"newer")
    assert guessed.is_symlink(), "what we did not make is not ours to remove"
    guessed.unlink()
    guessed.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="file: File exists"):
        write_atomically(path, b"newer")
    assert victim.read_bytes() == b"precious" and path.read_bytes() == b"new" and not (tmp_path / "nowhere").exists()


def test_parts_of_one_file_are_removed(tmp_path: Path) -> None:
    """Of no other file, and of what a link points to nothing."""
    for name in ("a[1].bin.0123.part", "a[1].bin.part", "a1.bin.0123.part", "b.part", "a[1].bin", "victim"):
        (tmp_path / name).touch()
    (tmp_path / "a[1].bin.4567.part").symlink_to(tmp_path / "victim")
    remove_parts(tmp_path / "a[1].bin")
    assert sorted(os.listdir(tmp_path)) == ["a1.bin.0123.part", "a[1].bin", "b.part", "victim"]


def test_the_file_and_then_its_folder_are_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced = tmp_path / "file", []

    def fsync(descriptor: int) -> None:
        whole = path.exists() and path.read_bytes() == b"new"
        synced.append(("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file", whole))

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(path, b"new")
    assert synced == [("file", False), ("folder", True)]


@pytest.mark.parametrize(("number", "raises"), [(errno.EIO, True), (errno.EINVAL, False)])
def test_a_folder_that_does_not_reach_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, raises: bool
) -> None:
    """Some file systems do not sync folders; what a disk itself refuses is told."""

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    told = pytest.raises(
        UsageError,
        match=r"^Cannot tell whether .*file reached the disk: Input/output error\. A power failure may",
    )
    with told if raises else nullcontext():
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_an_interruption_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "file", b"new")
    assert not os.listdir(tmp_path)


def test_others_may_read_what_they_may_read_of_any_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.slow
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
    assert f"Cannot write {path}: File too large. The rows so far are kept. Make room" in done.stdout
    assert path.read_text().startswith("row\n" * 1000) and not done.stderr


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(UsageError, match=r"^Cannot write "):
        write_atomically(tmp_path / "run/recipe.toml", b"")


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100, b"\x80\x04\x95pickle"])
def test_foreign_bytes_are_no_tensors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match=r"^Cannot read .* as safetensors: "):
        read_tensors(tmp_path / "x")


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    content = pack_tensors({"a": torch.arange(4)}, {"step": 1})
    for length in range(len(content)):
        (tmp_path / "x").write_bytes(content[:length])
        with pytest.raises(UsageError, match=r"^Cannot read .* as safetensors: "):
            read_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "^Cannot read .* as JSON: "),
        (b"[1]", "must hold a JSON object, not a list"),
        (b"\xff", "^Cannot read .* as JSON: "),
    ],
)
def test_json_that_is_none(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UsageError, match=words):
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
