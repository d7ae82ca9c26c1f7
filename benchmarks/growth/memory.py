"""The most memory that torch holds during a call, beyond what it held before."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile


def peak_bytes(work: Callable[[], object], device: torch.device) -> int:
    """By torch's own count of each allocation, so no noise; what a library behind torch allocates is not seen."""
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        with silence(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            work()
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_bytes())["traceEvents"]
    held = most = 0
    for event in sorted((event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        most = max(most, held)
    return most


@contextmanager
def silence() -> Iterator[None]:
    """Without what the profiler's library prints to file 2, which Python cannot catch otherwise."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
