"""Results as JSON: what was found, with the command, seed, device and versions that found it."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bagcert.files import write_json
from bagcert.program import device_name, versions

ROOT = Path(__file__).parents[2]
RESULTS = Path("studies/results")  # from the folder that a study is called in: the root of the repository
BENCHMARKS = ROOT / "benchmarks" / "results"


def provenance(module: str, options: Sequence[object], device: torch.device, seed: int = 0) -> dict[str, Any]:
    """The head of every result; `module` is what `python -m` runs."""
    return {
        "command": shlex.join(["python", "-m", *module.split(), *map(str, options)]),
        "seed": seed,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(),
    }


def write_results(path: Path, head: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Write one result file; `head` is its `provenance`, or what the file holds of other calls, each with its own."""
    write_json(path, {**head, **found})
    print(f"wrote {path}")
