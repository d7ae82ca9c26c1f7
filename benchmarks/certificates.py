"""Measure what certificates cost relative to the network that makes the scores.

    python -m benchmarks.certificates            (or `make bench`)

CIFAR-10 size: the shipped two-mask network (one path, receptive field 7) on test images; 5x5 patches. Its
logits go through `two-mask`, its votes (logit at least 0) through the rules that need bounds, and `two-mask` too.
ImageNet size: 1,000 classes on a 56x56 grid of stride 4, receptive field 17, 32x32 patches. Votes are drawn so that
each image has a class in the lead, since the maps of untrained networks have none.
"""

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

import bagcert
from bagcert.data import load_dataset
from bagcert.rules import Rule, find_rule, read_scores
from bagcert.threats import Footprint, Regions, parse_threat
from studies.common.commands import call
from studies.common.results import BENCHMARKS, provenance, write_results

RESULTS = BENCHMARKS / "certificates.json"
TIMED = 256  # images by which the network is timed


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """The median time of a call, after a warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_memory() -> float:
    """The peak memory of this process so far, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def rule_seconds(
    scores: Tensor, rule: str, regions: Regions, bounds: tuple[int, int] | None, exact: bool, repeats: int = 5
) -> float:
    """The time to check scores and to certify them."""
    found = find_rule(rule)
    return seconds(lambda: found.certify(read_scores(scores, bounds), regions, exact), repeats)


def cifar10(images: int) -> dict[str, Any]:
    """Times of network and rules on the same test images."""
    defense = bagcert.load("cifar10-small")
    batch = next(load_dataset("cifar10").split("test").batches(images, "cpu"))
    pixels = batch.images.contiguous(memory_format=torch.channels_last)
    scorer = defense.scorer
    some = pixels[:TIMED].split(64)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        forward = seconds(lambda: [scorer.logits(part) for part in some], repeats=2) * images / min(images, TIMED)
        logits = scorer.scores(pixels)
    votes = (logits >= 0).to(torch.int32)
    regions = scorer.footprint.regions(parse_threat("5x5", (32, 32))).maximal()
    result: dict[str, Any] = {"images": images, "network_ms_per_image": 1000 * forward / images, "rules": {}}
    for name, scores, rule, bounds, exact in (
        ("votes: largest-region", votes, "largest-region", (0, 1), True),
        ("votes: every-region", votes, "every-region", (0, 1), True),
        ("votes: masked", votes, "masked", (0, 1), True),
        ("votes: two-mask", votes, "two-mask", (0, 1), False),
        ("votes: two-mask, exact lead", votes, "two-mask", (0, 1), True),
        ("logits: two-mask", logits, "two-mask", None, False),
        ("logits: two-mask, exact lead", logits, "two-mask", None, True),
        ("logits: detect", logits, "detect", None, False),
        ("logits: detect, exact lead", logits, "detect", None, True),
    ):
        spent = rule_seconds(scores, rule, regions, bounds, exact)
        result["rules"][name] = {
            "ms_per_1000_images": round(1e6 * spent / images, 1),
            "percent_of_network": round(100 * spent / forward, 3),
        }
        print(f"cifar10, {name}: {result['rules'][name]}", file=sys.stderr, flush=True)
    return {**result, "alert": alert_cost(logits, regions)}


def alert_cost(logits: Tensor, regions: Regions) -> dict[str, float]:
    """The time of a two-mask certificate with an alert over one without: the median of pairs, timed one by one."""
    scores, ratios = read_scores(logits, None), {}
    for name, exact in (("two-mask with an alert", False), ("two-mask with an alert, exact lead", True)):
        plain, alerting = (
            partial(find_rule(rule).certify, scores, regions, exact) for rule in ("two-mask", "two-mask:0")
        )
        pairs = [(seconds(alerting, 1), seconds(plain, 1)) for _ in range(9)]
        ratios[name] = round(statistics.median(more / less for more, less in pairs), 3)
    return ratios


def drawn_votes(images: int, classes: int, grid: int) -> Tensor:
    """Made-up votes: each class at one position in a hundred, one class of each image much more often."""
    draw = torch.Generator().manual_seed(0)
    votes = torch.empty(images, classes, grid, grid, dtype=torch.int8)
    for image, strength in zip(votes, torch.linspace(0.02, 0.5, images).tolist(), strict=True):
        # One by one: drawing all at once would be the peak memory of this process.
        image.copy_(torch.rand(classes, grid, grid, generator=draw) < 0.01)
        image[classes // 2] |= torch.rand(grid, grid, generator=draw) < strength
    return votes


def imagenet_regions() -> Regions:
    footprint = Footprint.centered(17, 4, (224, 224), (56, 56))
    return footprint.regions(parse_threat("32x32", (224, 224))).maximal()


def imagenet(images: int) -> dict[str, Any]:
    """Time and extra memory at ImageNet size."""
    regions = imagenet_regions()
    votes = drawn_votes(images, 1000, 56)
    result: dict[str, Any] = {"images": images, "classes": 1000, "masks": len(regions), "rules": {}}
    before = peak_memory()  # a peak never falls: the one of two-mask includes what every-region needed before it
    for rule in ("every-region", "two-mask"):
        spent = rule_seconds(votes, rule, regions, (0, 1), exact=False, repeats=1)
        result["rules"][rule] = {
            "seconds_per_image": round(spent / images, 4),
            "extra_memory_gib": round(peak_memory() - before, 3),
        }
        print(f"imagenet, {rule}: {result['rules'][rule]}", file=sys.stderr, flush=True)
    return result


def growth() -> dict[str, Any]:
    """Seconds against the number of images (10 classes) and of classes (16 images), 56x56 grid."""
    regions = imagenet_regions()
    curves: dict[str, Any] = {}
    for rule in ("every-region", "two-mask"):
        found = find_rule(rule)

        def cost(images: int, classes: int, found: Rule = found) -> float:
            scores = read_scores(drawn_votes(images, classes, 56))
            return round(seconds(lambda: found.certify(scores, regions, False), repeats=3), 4)

        curves[rule] = {
            "by_images": {count: cost(count, 10) for count in (8, 16, 32, 64, 128)},
            "by_classes": {count: cost(16, count) for count in (10, 30, 100, 300, 1000)},
        }
        print(f"growth, {rule}: {curves[rule]}", file=sys.stderr, flush=True)
    return curves


def main(out: Annotated[Path, typer.Option(help="the table, as JSON")] = RESULTS) -> None:
    """Time network and rules on one machine."""
    results = {
        "imagenet": imagenet(64),  # first: its memory is measured against the peak before it
        "growth": growth(),
        "cifar10": cifar10(1000),
    }
    print(json.dumps(results, indent=2))
    write_results(out, provenance("benchmarks.certificates", [], torch.device("cpu")), results)


if __name__ == "__main__":
    call(main)
