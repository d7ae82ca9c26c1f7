"""How much of its model's speed does a server keep under load? Into benchmarks/results/: make load

    python -m benchmarks.serving --model cifar10-small --clients 32 --seconds 120

Clients send single test images over open connections as fast as they are answered, and every answer is compared with
the one of `Defense.certify`. The raw speed is that of the network alone on full batches, with as many threads. It is
measured before, between and after parts of the load, and the share is the median over the parts.

On a machine that others use, wall time says little: programs with more threads get more of it. So the processor time
per image, raw and served, is stored too. With one thread, which never waits for another, their ratio is a lower bound
of the share on quiet cores, where the server's other work has its own core.
"""

import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import bagcert
from bagcert.data import load_dataset
from bagcert.defense import Defense
from bagcert.files import read_json
from bagcert.server.images import to_png
from benchmarks.serving.clients import FACTS, Tally, drive, once_each, until
from studies.common.results import BENCHMARKS, provenance, write_results

RESULTS = BENCHMARKS / "serving.json"
PICTURES = 128
RAW_SECONDS = 10.0


def expected(defense: Defense, images: Tensor) -> list[dict[str, Any]]:
    """What the server must answer for each image."""
    found = defense.certify(images)
    assert found.lead is not None and found.weakest_region is not None
    names = ("row", "column", "height", "width")
    places = [dict(zip(names, place, strict=True)) for place in found.weakest_region.tolist()]
    facts = zip(found.predicted.tolist(), found.certified.tolist(), found.lead.tolist(), places, strict=True)
    return [dict(zip(FACTS, each, strict=True)) for each in facts]


def raw_speed(defense: Defense, images: Tensor, seconds: float) -> tuple[float, float]:
    """Of the network alone: images per second, and processor seconds per image."""
    batch, count = images[: defense.batch_size], 0
    defense.scores(batch)
    begun, used = time.perf_counter(), time.process_time()
    while time.perf_counter() < begun + seconds:
        defense.scores(batch)
        count += len(batch)
    return count / (time.perf_counter() - begun), (time.process_time() - used) / count


@contextmanager
def serving(model: str, threads: int) -> Iterator[tuple[int, str]]:
    """A server as users start it: its process and address."""
    command = [sys.executable, "-m", "bagcert", "serve", model, "--port", "0", "--threads", str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            server.stdout.readline()
            yield server.pid, server.stdout.readline().strip()
        finally:
            server.terminate()


def processor_seconds(process: int) -> float:
    """The processor time of a process so far, over all threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Resident memory of a process, in MiB."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text(encoding="ascii"))
    assert found is not None
    return int(found[1]) / 2**10


def measure(
    model: Annotated[str, typer.Option(help="a shipped model")] = "cifar10-small",
    clients: Annotated[int, typer.Option(min=1)] = 32,
    seconds: Annotated[float, typer.Option(help="of load, in all")] = 120.0,
    parts: Annotated[int, typer.Option(help="that the load is cut into", min=1)] = 4,
    threads: Annotated[int | None, typer.Option(help="of the model; default: the cores", min=1)] = None,
) -> None:
    """Load one server; a lost or wrong answer is exit code 1."""
    if threads is not None:
        torch.set_num_threads(threads)
    defense = bagcert.load(model)
    images = next(load_dataset("cifar10").split("test").batches(PICTURES, "cpu")).images
    levels = (images * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    files, wanted = [to_png(each.numpy()) for each in levels], expected(defense, images)
    load = os.getloadavg()[0]
    tally, speeds = Tally(), list[float]()
    with serving(model, torch.get_num_threads()) as (process, url):
        drive(url, files, wanted, clients, once_each(clients), tally)  # warm
        raw, held = [raw_speed(defense, images, RAW_SECONDS)], memory(process)
        used, answered = processor_seconds(process), tally.right
        for _ in range(parts):
            begun, before = time.monotonic(), tally.right
            drive(url, files, wanted, clients, until(begun + seconds / parts), tally)
            speeds.append((tally.right - before) / (time.monotonic() - begun))
            raw.append(raw_speed(defense, images, RAW_SECONDS))
        grown, served = memory(process), (processor_seconds(process) - used) / (tally.right - answered)
    shares = [2 * speed / (raw[number][0] + raw[number + 1][0]) for number, speed in enumerate(speeds)]
    alone = statistics.median(cost for _, cost in raw)
    spent = sorted(tally.seconds)
    result = {
        **provenance("benchmarks.serving", sys.argv[1:], torch.device("cpu")),
        "model": model,
        "clients": clients,
        "seconds": seconds,
        "load_average_before": round(load, 1),
        "requests_answered_right": tally.right,
        "answered_wrongly": len(tally.wrong),
        "lost": len(tally.lost),
        "images_per_second": [round(speed, 2) for speed in speeds],
        "raw_images_per_second": [round(speed, 2) for speed, _ in raw],
        "share_of_raw": round(statistics.median(shares), 3),
        "processor_ms_per_image": {"raw": round(1000 * alone, 1), "served": round(1000 * served, 1)},
        "share_by_processor_time": round(alone / served, 3),
        "request_seconds": {"median": round(spent[len(spent) // 2], 2), "most": round(spent[-1], 2)},
        "memory_mib": {"before": round(held), "after": round(grown)},
    }
    stored = read_json(RESULTS) if RESULTS.exists() else {}
    write_results(RESULTS, stored, {f"{model}, threads={torch.get_num_threads()}": result})
    print(json.dumps(result, indent=2))
    for words in (*tally.wrong[:5], *tally.lost[:5]):
        print(words, file=sys.stderr)
    if tally.wrong or tally.lost:
        raise typer.Exit(1)
