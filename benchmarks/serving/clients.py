"""Clients of a server that ask from many threads at once and check every answer."""

import http.client
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

FACTS = ("class", "certified", "lead", "weakest")


@dataclass
class Tally:
    """What came of the requests of all clients."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # each request


def drive(
    url: str,
    files: list[bytes],
    wanted: list[dict[str, Any]],
    clients: int,
    going_on: Callable[[], bool],
    tally: Tally,
) -> None:
    """Ask from many threads. Each starts at another file and goes on while `going_on` is true."""
    lock = threading.Lock()

    def client(number: int) -> None:
        connection = http.client.HTTPConnection(url.removeprefix("http://").strip("/"), timeout=120)
        index = number * len(files) // clients
        while going_on():
            index = (index + 1) % len(files)
            begun = time.perf_counter()
            try:
                found = ask(connection, files[index])
            except (OSError, http.client.HTTPException, ValueError) as error:
                with lock:
                    tally.lost.append(f"{type(error).__name__}: {error}")
                connection.close()
                continue
            with lock:
                tally.seconds.append(time.perf_counter() - begun)
                if {name: found[name] for name in FACTS} == wanted[index]:
                    tally.right += 1
                else:
                    tally.wrong.append(json.dumps([index, found]))
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ask(connection: http.client.HTTPConnection, file: bytes) -> dict[str, Any]:
    """The answer to one picture; anything but 200 is an error."""
    body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="p"\r\n\r\n' + file + b"\r\n--x--\r\n"
    connection.request("POST", "/v1/certify", body, {"Content-Type": "multipart/form-data; boundary=x"})
    response = connection.getresponse()
    content = response.read()
    if response.status != 200:
        raise ValueError(f"status {response.status}: {content[:200]!r}")
    (answer,) = json.loads(content)["answers"]
    return dict(answer)


def once_each(clients: int) -> Callable[[], bool]:
    """True for that many calls."""
    left = iter(range(clients))
    return lambda: next(left, None) is not None


def until(moment: float) -> Callable[[], bool]:
    """True up to a moment of the monotonic clock."""
    return lambda: time.monotonic() < moment
