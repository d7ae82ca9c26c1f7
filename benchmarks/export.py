"""Measure what an exported graph costs, and how well it agrees with torch.

    python -m benchmarks.export                   (about half an hour on two cores: all test images are compared)
    python -m benchmarks.export --compared 500    (a first look)

The two smaller shipped models on CIFAR-10 test images, 5x5 patches. Every round times each program once, and the ratios
are medians over the rounds: if the machine is busy, it is busy for all of them. Memory is that of a separate process
that runs onnxruntime alone, on one batch of 64.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import onnxruntime
import torch
import typer
from torch import Tensor

import bagcert
from bagcert.audit.backends import prepare
from bagcert.data import load_dataset
from bagcert.defense import Defense
from bagcert.files import read_json, write_atomically
from bagcert.onnx.export import export_defense
from bagcert.onnx.guard import GuardBand
from bagcert.program import Program
from bagcert.rules import read_scores
from bagcert.stored_models import card
from studies.common.commands import call
from studies.common.results import BENCHMARKS, ROOT, provenance, write_results
from studies.common.tables import Lines, put_table

RESULTS, PAGE = BENCHMARKS / "export.json", ROOT / "docs" / "deploy.md"
BANDS = {"cifar10-small": GuardBand(slack=1), "cifar10-votes": GuardBand(uncertain=1e-3)}
RULES = ("every-region", "two-mask")
TIMED, ROUNDS, MEMORY_BATCH = 32, 5, 64
SHOWN = {
    "torch, NCHW": "torch, eager, NCHW",
    "torch, channels_last": "torch, eager, channels_last",
    "onnxruntime, network": "onnxruntime, network alone",
    "onnxruntime, every-region": "graph with `every-region`",
    "onnxruntime, two-mask": "graph with `two-mask`, exact lead",
}

# Its own peak: getrusage of a child includes what the parent held when it was started.
ALONE = """
import re, sys
from pathlib import Path
import numpy as np, onnxruntime
def peak(): return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 2**20
path, pixels = sys.argv[1:]
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
loaded = peak()
session.run(None, {"images": np.load(pixels)})
print(loaded, peak())
"""


def session_run(model: onnx.ModelProto) -> Callable[[Tensor], dict[str, Any]]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda images: dict(zip(names, session.run(None, {"images": images.numpy()}), strict=True))


def speed(defense: Defense, graphs: dict[str, onnx.ModelProto], images: Tensor) -> dict[str, Any]:
    """Times relative to eager torch in NCHW, torch's default layout."""
    programs: dict[str, Callable[[Tensor], object]] = {
        "torch, NCHW": prepare(Program(channels_last=False, batch=0), defense.scorer, 3),
        "torch, channels_last": prepare(Program(batch=0), defense.scorer, 3),
        "onnxruntime, network": prepare(Program(backend="onnx", batch=0), defense.scorer, 3),
        **{f"onnxruntime, {rule}": session_run(graph) for rule, graph in graphs.items()},
    }
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(ROUNDS + 1):  # the first one warms up
        for name, run in programs.items():
            start = time.perf_counter()
            run(images)
            times[name] += [time.perf_counter() - start] if number else []
    plain = times["torch, NCHW"]
    return {
        name: {
            "ms_per_image": round(1000 * statistics.median(spent) / len(images), 2),
            "times_as_fast": round(statistics.median(p / s for p, s in zip(plain, spent, strict=True)), 2),
        }
        for name, spent in times.items()
    }


def memory(graphs: dict[str, onnx.ModelProto], images: Tensor) -> dict[str, Any]:
    """Memory in GiB of a process that runs one batch: its peak, and what it held after loading the graph."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "pixels.npy", images.numpy())
        for rule, graph in graphs.items():
            onnx.save(graph, Path(folder) / "model.onnx")
            command = [sys.executable, "-c", ALONE, "model.onnx", "pixels.npy"]
            words = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.split()
            found[rule] = {"loaded": round(float(words[0]), 3), "peak": round(float(words[1]), 3)}
    return found


def agreement(defense: Defense, band: GuardBand, parts: Iterable[Tensor]) -> dict[str, Any]:
    """Graph and torch on the same images: what differs, why, and whether a certificate is ever contradicted."""
    run = session_run(export_defense(defense, band, {}))
    largest, counts = 0, Counter[str]()
    for images in parts:
        graph = {name: torch.from_numpy(output) for name, output in run(images).items()}
        scores = defense.scores(images)
        ours, bounds = defense.certify_integers(scores), defense.scorer.step.bounds
        plain = defense.certify_integers(read_scores(graph["scores"], bounds))  # the graph's scores without the band
        moved = (graph["scores"] != scores.values).flatten(1)
        differs = (plain.predicted != ours.predicted) | (plain.certified != ours.certified)
        sure = graph["certified"]
        largest = max(largest, int((graph["scores"] - scores.values).abs().max()))
        found = {
            "scores_that_differ": moved,
            "answers_that_differ": differs,
            "of_them_without_a_score_that_differs": differs & ~moved.any(dim=1),
            "certified_by_torch": ours.certified,
            "certified_by_graph_with_band": sure,
            "contradicted": sure & ~(ours.certified & (ours.predicted == graph["class"])),
        }
        counts.update({name: int(flags.sum()) for name, flags in found.items()})
        counts.update(images=len(images), scores=moved.numel())
    return {"rule": defense.rule.name, "guard_band": str(band), "largest_difference_in_units": largest, **counts}


def table() -> Lines:
    """The costs as docs/deploy.md shows them."""
    models = read_json(RESULTS)["models"]
    lines: Lines = [("", *(f"`{name}`" for name in models))]
    for program, words in SHOWN.items():
        ratios = [found["speed"][program]["times_as_fast"] for found in models.values()]
        lines.append((words, *(f"{ratio:.2f}x" for ratio in ratios)))
    peaks = [found["memory_gib_at_batch_64"]["two-mask"]["peak"] for found in models.values()]
    return [*lines, ("peak memory, `two-mask`", *(f"{peak:.2f} GiB" for peak in peaks))]


def filled(page: str) -> str:
    return put_table(page, "export", table())


def main(
    compared: Annotated[int, typer.Option(help="images on which graph and torch are compared", min=64)] = 10_000,
) -> None:
    """Time the graphs, measure their memory and compare their answers with torch's."""
    source = load_dataset("cifar10").split("test")
    images = next(source.batches(MEMORY_BATCH, "cpu")).images
    models: dict[str, dict[str, Any]] = {}
    for name in BANDS:
        defense = bagcert.load(name)
        graphs = {rule: export_defense(defense.against("5x5", rule), GuardBand(), {}) for rule in RULES}
        spent = {"speed": speed(defense, graphs, images[:TIMED]), "memory_gib_at_batch_64": memory(graphs, images)}
        models[name] = {"weights_sha256": card(name)["weights_sha256"], **spent}
    for name, band in BANDS.items():
        parts = (batch.images for batch in islice(source.batches(MEMORY_BATCH, "cpu"), -(-compared // MEMORY_BATCH)))
        models[name]["agreement"] = agreement(bagcert.load(name), band, parts)
    results = {
        "onnxruntime": onnxruntime.__version__,
        "images_timed": TIMED,
        "rounds": ROUNDS,
        "models": models,
    }
    write_results(RESULTS, provenance("benchmarks.export", ["--compared", compared], torch.device("cpu")), results)
    write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8")).encode())
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    call(main)
