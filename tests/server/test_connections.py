"""A real server under slow and many connections."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
import uvicorn

from bagcert.server.app import build_app
from bagcert.server.connections import with_header_timeout
from bagcert.server.samples import drawn_samples
from tests.server.conftest import LIMITS, small_model

PATIENCE = 120  # seconds before a test counts as hanging
HALF = b"GET /v1/model HTTP/1.1\r\nHost: localhost\r\nX-Slow: "


@contextmanager
def serving(header_seconds: float, connections: int) -> Iterator[tuple[str, int]]:
    """The address of a server with these limits."""
    app = build_app(small_model(), drawn_samples((12, 12), 3), LIMITS)
    protocol = with_header_timeout(header_seconds)
    settings = {"log_level": "critical", "access_log": False, "ws": "none", "limit_concurrency": connections}
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, **settings))  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            address = listening.getsockname()
            assert status(address) == 200  # waits until it is up
            yield address
        finally:
            server.should_exit = True
            thread.join()


def status(address: tuple[str, int]) -> int:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/health", timeout=PATIENCE) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def until_closed(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(2**16), b""))


def test_headers_that_do_not_end_are_cut_off() -> None:
    with serving(header_seconds=0.2, connections=100) as address, ExitStack() as opened:
        silent, slow, second = (opened.enter_context(socket.create_connection(address, PATIENCE)) for _ in range(3))
        slow.sendall(HALF)
        second.sendall(HALF + b"not\r\n\r\n" + HALF)  # a whole request, and half of another
        assert until_closed(silent) == until_closed(slow) == b""
        answered = until_closed(second)
        assert answered.startswith(b"HTTP/1.1 200 ") and answered.count(b"HTTP/1.1") == 1
        assert status(address) == 200


def test_slow_headers_keep_nobody_else_waiting() -> None:
    with serving(header_seconds=PATIENCE, connections=100) as address, ExitStack() as opened:
        for _ in range(20):
            opened.enter_context(socket.create_connection(address, PATIENCE)).sendall(HALF)
        assert status(address) == 200


def test_connections_beyond_the_limit_are_told_so() -> None:
    with serving(header_seconds=PATIENCE, connections=5) as address:
        with ExitStack() as opened:
            for _ in range(5):
                opened.enter_context(socket.create_connection(address, PATIENCE)).sendall(HALF)
            assert status(address) == 503
        assert any(status(address) == 200 for _ in range(1000))  # as soon as the server sees that they are closed


@pytest.mark.parametrize("both", [b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"])
def test_two_lengths_are_refused_by_the_whole_server(both: bytes) -> None:
    with serving(PATIENCE, 100) as address, socket.create_connection(address, PATIENCE) as connection:
        connection.sendall(b"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\n" + both + b"\r\n0\r\n\r\n")
        assert until_closed(connection).startswith(b"HTTP/1.1 400 ")
