"""Measure what is lost when two processes share the work of one, and the processor time to the first row.

    python -m benchmarks processes                (about fifteen minutes on two cores)
    python -m benchmarks processes --rounds 1     (a first look)

Certifies with `cifar10-small` and trains a small network on CIFAR-10, one thread per process, by gloo. A round has
three runs of each: one process; two processes under torchrun that share the same work; and two processes side by side
that do not know each other, with half of the work each. The last says what the machine itself loses when both of its
cores are busy, so the rest of the loss is ours. A busy machine is busy for all three, and medians are kept.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from bagcert.files import read_json, write_atomically
from studies.common.commands import call
from studies.common.results import BENCHMARKS, ROOT, provenance, write_results
from studies.common.tables import Lines, put_table

RESULTS, PAGE = BENCHMARKS / "processes.json", ROOT / "docs" / "deploy.md"
SIZES = {"certify": 384, "train": 64}  # images in all; images of a step
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
WORKER = ("-m", "benchmarks.processes.worker")
FIRST = ("-m", "bagcert", "certify", "cifar10-small", "--limit", "16", "--out")
ALONE = os.environ | {"OMP_NUM_THREADS": "1"}
LOSSES = ("processor_against_one", "processor_against_apart", "clock_against_one", "clock_against_apart")
WORDS = {"certify": "`bagcert certify`", "train": "`bagcert train`"}


def measured(kind: str, size: int, processes: tuple[tuple[str, ...], ...]) -> list[dict[str, float]]:
    """The seconds of processes that run side by side; each is what stands before the worker's name."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{number}.json" for number in range(len(processes))]
        begun = [
            subprocess.Popen([sys.executable, *start, *WORKER, kind, str(size), str(out)], cwd=ROOT, env=ALONE)
            for start, out in zip(processes, outs, strict=True)
        ]
        assert [process.wait() for process in begun] == [0] * len(begun)
        return [read_json(out) for out in outs]


def one_round(kind: str) -> dict[str, float]:
    """Seconds of one process, of two together, and of two apart, by the clock and of the busiest process."""
    size = SIZES[kind]
    (one,), (two,) = measured(kind, size, ((),)), measured(kind, size, (TORCHRUN,))
    apart = measured(kind, size // 2, ((), ()))
    found = {f"one_{name}": one[name] for name in one} | {f"two_{name}": two[name] for name in two}
    found |= {f"apart_{name}": max(each[name] for each in apart) for name in one}
    return {name: round(value, 3) for name, value in found.items()}


def losses(rounds: list[dict[str, float]]) -> dict[str, float]:
    """Shares of the ideal speed that are lost: medians over the rounds."""

    def median(share: Callable[[dict[str, float]], float]) -> float:
        return round(statistics.median(map(share, rounds)), 4)

    return {
        "clock_against_one": median(lambda each: 1 - each["one_clock"] / (2 * each["two_clock"])),
        "clock_against_apart": median(lambda each: 1 - each["apart_clock"] / each["two_clock"]),
        "processor_against_one": median(lambda each: 1 - each["one_processor"] / (2 * each["two_processor"])),
        "processor_against_apart": median(lambda each: 1 - each["apart_processor"] / each["two_processor"]),
    }


def first_row(threads: str | None) -> float:
    """Processor seconds of all of `bagcert certify cifar10-small --limit 16`: no less than to its first row."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    environment |= {"OMP_NUM_THREADS": threads} if threads else {}
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, *FIRST, str(Path(folder) / "rows.jsonl")]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2)


def table() -> Lines:
    """The losses as docs/deploy.md shows them."""
    found = read_json(RESULTS)
    lines: Lines = [("two processes lose", *(name.replace("_", ", ", 1).replace("_", " ") for name in LOSSES))]
    for kind, words in WORDS.items():
        lost = found[kind]["lost"]
        lines.append((words, *(f"{100 * lost[name]:.1f} %" for name in LOSSES)))
    return lines


def start_table() -> Lines:
    """The processor time of a start, as docs/deploy.md shows it."""
    found = read_json(RESULTS)["first_row_processor_seconds"]
    lines = [(name.replace("_", " "), f"{seconds:.1f} s") for name, seconds in found.items()]
    return [("`bagcert certify cifar10-small --limit 16`", "processor time"), *lines]


def filled(page: str) -> str:
    return put_table(put_table(page, "processes", table()), "start", start_table())


def main(
    rounds: Annotated[int, typer.Option(help="of which the medians count", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="the losses, as JSON")] = RESULTS,
) -> None:
    """Measure both kinds of work, and the start; fill the table."""
    found: dict[str, Any] = {"load_before": round(os.getloadavg()[0], 2), "rounds": rounds}
    for kind, size in SIZES.items():
        runs = []
        for _ in range(rounds):
            runs.append(one_round(kind))
            print(kind, json.dumps(runs[-1]), flush=True)
        found[kind] = {"images": size, "lost": losses(runs), "runs": runs}
        print(kind, json.dumps(found[kind]["lost"]), flush=True)
    starts = {"one_thread": "1", "usual_threads": None}
    found["first_row_processor_seconds"] = {
        name: statistics.median(first_row(threads) for _ in range(rounds)) for name, threads in starts.items()
    }
    print(json.dumps(found["first_row_processor_seconds"]), flush=True)
    found["load_after"] = round(os.getloadavg()[0], 2)
    write_results(out, provenance("benchmarks processes", ["--rounds", rounds], torch.device("cpu")), found)
    if out == RESULTS:
        write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8")).encode())


if __name__ == "__main__":
    call(main)
