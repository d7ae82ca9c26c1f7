"""The command as a real process: it answers, is stopped and is killed."""

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bagcert.cli.serve import announce, sample_pictures
from bagcert.defense import load
from bagcert.server.model import to_images
from tests.cli.calling import call
from tests.data.tiny_cifar10 import TinyCifar10
from tests.onnx.conftest import small_defense
from tests.server.conftest import file_of, small_model

pytestmark = pytest.mark.slow


@contextmanager
def serving(tmp_path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server for the shipped model, and its address, which it prints once it listens."""
    command = [sys.executable, "-m", "bagcert", "serve", "cifar10-small", "--threads", "1", "--data-dir", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            told = process.stdout.readline()
            assert "5x5 pixels (2.44 %) of 32x32, two-mask; scores by torch, cpu, float32, eager, channels_last" in told
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def ask(url: str, *files: bytes) -> dict[str, Any]:
    """Post files as a form, with the standard library alone."""
    parts = [
        b'--x\r\nContent-Disposition: form-data; name="files"; filename="p"\r\n\r\n' + file + b"\r\n" for file in files
    ]
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    request = urllib.request.Request(url + "v1/certify", b"".join(parts) + b"--x--\r\n", headers)
    with urllib.request.urlopen(request, timeout=120) as response:
        answer: dict[str, Any] = json.load(response)
        return answer


def samples_of(url: str) -> list[bytes]:
    with urllib.request.urlopen(url + "v1/samples", timeout=120) as response:
        names = json.load(response)
    return [urllib.request.urlopen(url + each["url"][1:], timeout=120).read() for each in names[:3]]


def test_after_a_kill_the_same_address_gives_the_same_answers(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0") as (process, url):
        pictures = samples_of(url)
        before = ask(url, *pictures)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
    port = url.rsplit(":", 1)[1].strip("/")
    with serving(tmp_path, "--port", port) as (_, again):
        assert again == url
        assert ask(again, *pictures) == before
    drawn = sample_pictures("cifar10", small_model(load("cifar10-small")), tmp_path)
    wanted = load("cifar10-small").certify(to_images([each.pixels for each in drawn[:3]]))
    assert [answer["class"] for answer in before["answers"]] == wanted.predicted.tolist()
    assert [answer["certified"] for answer in before["answers"]] == wanted.certified.tolist()


def test_what_was_accepted_is_answered_before_the_end(tmp_path: Path) -> None:
    """The last bytes of a form arrive only after the server is told to stop, and it is answered."""
    with serving(tmp_path, "--port", "0") as (process, url):
        (picture,) = samples_of(url)[:1]
        body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="p"\r\n\r\n' + picture + b"\r\n--x--\r\n"
        head = f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n".encode()
        head += b"Content-Type: multipart/form-data; boundary=x\r\nExpect: 100-continue\r\n\r\n"
        host, port = url.removeprefix("http://").strip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=120) as connection:
            connection.sendall(head)
            assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")  # the server is waiting for the form
            process.send_signal(signal.SIGTERM)
            connection.sendall(body)
            answer = b"".join(iter(lambda: connection.recv(2**16), b""))
        assert answer.startswith(b"HTTP/1.1 200 ") and b'"class":' in answer
        assert process.wait(120) == -signal.SIGTERM
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


def test_an_address_in_use_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert call(monkeypatch, "serve", "cifar10-small", "--port", port) == 2
    assert (
        f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another --port." in capsys.readouterr().err
    )


def test_a_rule_that_the_model_is_not_fit_for_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "serve", "cifar10-small", "--rule", "masked", "--port", "0") == 2
    assert "Rule 'masked' needs scores of at least 0" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["", "schlüssel", "two\nlines"])
def test_tokens_that_no_header_carries_are_refused(
    token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BAGCERT_TOKEN", "")
    assert call(monkeypatch, "serve", "cifar10-small", "--token", token) == 2
    assert "The token must be one or more printable ASCII characters." in capsys.readouterr().err


def test_an_open_address_is_remarked_on(capsys: pytest.CaptureFixture[str]) -> None:
    for host, open_to_all, told in (("127.0.0.1", True, False), ("0.0.0.0", False, False), ("0.0.0.0", True, True)):
        with socket.create_server((host, 0)) as listening:
            announce(small_model(), listening, open_to_all)
            printed = capsys.readouterr()
            assert f"http://{host}:{listening.getsockname()[1]}/" in printed.out
        assert ("anyone who can reach this address may use it" in printed.err) is told


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("bagcert.errors.find_spec", lambda name: None if name == "uvicorn" else object())
    assert call(monkeypatch, "serve", "cifar10-small") == 2
    assert "The server needs uvicorn. Run: pip install uvicorn\n" in capsys.readouterr().err


def test_samples_are_the_first_test_images(tiny_cifar10: TinyCifar10, tmp_path: Path) -> None:
    model = small_model(load("cifar10-small"))
    assert [each.name for each in sample_pictures("cifar10", model, tmp_path)][:2] == ["a drawn 0", "a drawn 1"]
    (tmp_path / "test_batch.bin").write_bytes(tiny_cifar10.batches["test_batch.bin"])
    samples = sample_pictures("cifar10", model, tmp_path)
    first = tiny_cifar10.batches["test_batch.bin"][1:3073]
    assert len(samples) == 12 and samples[0].pixels.transpose(2, 0, 1).tobytes() == first
    other = small_model(small_defense("logits", "two-mask"))  # 12x12 pixels: the data set's images do not fit
    assert sample_pictures("cifar10", other, tmp_path)[0].name == "a drawn 0"
    assert file_of(samples[0].pixels).startswith(b"\x89PNG")
