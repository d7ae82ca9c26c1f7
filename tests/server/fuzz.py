"""Send broken files to a running server, and requests made up from its OpenAPI: make fuzz

Nothing may crash, be answered with 500 or be left without an answer, a good picture in between must get the same answer
every time, and memory must stay where it was after the first files.
"""

import random
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import httpx2
import typer

from benchmarks.serving import memory
from tests.server.conftest import file_of, photos
from tests.server.mutations import mutate, seeds

CLIENTS = 4
ROUND = 500
MOST_GROWTH_MIB = 48  # of the last rounds beyond the first ones; one large picture takes as much for a moment


def send_files(url: str, server: int, files: int, seed: int) -> Counter[int]:
    """Mutated files in rounds; returns how often each status was given."""
    draw, stock, statuses, held = random.Random(seed), seeds(), Counter[int](), list[float]()
    good = file_of(photos()[-1])

    def send(file: tuple[int, bytes]) -> int:
        number, content = file
        path, field = ("/v1/attack?steps=2", "file") if number % 50 == 0 else ("/v1/certify", "files")
        response = client.post(path, files={field: ("p", content)})
        assert response.status_code in (200, 413, 415, 422), (response.status_code, response.text, content)
        return response.status_code

    with httpx2.Client(base_url=url, timeout=60) as client, ThreadPoolExecutor(CLIENTS) as pool:
        wanted = client.post("/v1/certify", files={"files": good}).json()
        while statuses.total() < files:
            statuses.update(pool.map(send, enumerate([mutate(stock, draw) for _ in range(ROUND)])))
            assert client.post("/v1/certify", files={"files": good}).json() == wanted
            held.append(memory(server))
            print(f"{statuses.total()} files, {dict(statuses)}, {held[-1]:.0f} MiB", flush=True)
    begun, ended = max(held[: len(held) // 4 + 1]), max(held[-(len(held) // 4 + 1) :])
    assert ended < begun + MOST_GROWTH_MIB, f"memory grew from {begun:.0f} to {ended:.0f} MiB"
    return statuses


def main(
    files: Annotated[int, typer.Option(help="mutated picture files")] = 10_000,
    requests: Annotated[int, typer.Option(help="made-up requests for each operation, by schemathesis")] = 200,
    seed: int = 0,
) -> None:
    command = [sys.executable, "-m", "tests.server.small_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            send_files(url, server.pid, files, seed)
            # That what a schema allows is accepted cannot hold here: bytes are rarely a picture.
            options = [
                "--checks",
                "all",
                "--exclude-checks",
                "positive_data_acceptance",
                "--max-examples",
                str(requests),
                "--seed",
                str(seed),
                "--no-color",
            ]
            tool = str(Path(sys.executable).parent / "st")
            with tempfile.TemporaryDirectory() as folder:  # it leaves notes where it runs
                done = subprocess.run([tool, "run", f"{url}/openapi.json", *options], cwd=folder)
            assert server.poll() is None, "the server has died"
            print(f"memory at the end: {memory(server.pid):.0f} MiB")
        finally:
            server.terminate()
    sys.exit(done.returncode)


if __name__ == "__main__":
    typer.run(main)
