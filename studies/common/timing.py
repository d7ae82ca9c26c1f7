"""How long network and rule take for the same images."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bagcert.defense import Defense

BATCH = {"cpu": 4, "cuda": 500}


def measured(name: str, defense: Defense, images: Tensor, repeats: int) -> dict[str, Any]:
    """Parameters, and seconds of network and rule for these images."""
    scores = defense.scores(images)
    network = timed(lambda: defense.scores(images), images.device, repeats)
    rule = timed(lambda: defense.certify_integers(scores, exact=False), images.device, repeats)
    parameters = sum(parameter.numel() for parameter in defense.scorer.parameters())
    facts = {"network": name, "receptive_field": defense.scorer.footprint.receptive_field[0], "rule": defense.rule.name}
    return {**facts, "parameters": parameters, "network_seconds": network, "rule_seconds": rule}


def timed(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The shortest of some calls, after a warm-up."""
    return min(times(work, device, 1 + repeats)[1:])


def times(work: Callable[[], object], device: torch.device, calls: int) -> list[float]:
    """The seconds of each call; on a CPU, processor time instead of wall time."""
    clock, found = time.process_time if device.type == "cpu" else time.perf_counter, []
    for _ in range(calls):
        begun = clock()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        found.append(clock() - begun)
    return found
