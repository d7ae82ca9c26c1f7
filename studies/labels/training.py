"""Train a network for a task on pictures of tiles, and keep it as a run folder."""

import time
from pathlib import Path

import torch

from bagcert.data import ArrayDataset
from bagcert.data.base import derive_seed
from bagcert.program import device_name, versions
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.weights import rounded, save_scorer
from bagcert.threats import parse_threat
from bagcert.training.optimizers import MuonConfig, ScheduleConfig, set_rates
from studies.labels.tasks import Task
from studies.labels.tiles import picture_size, training_pictures

PATCH = "5x5"  # that training prepares for
PARTS = 10_000  # of a schedule
SCHEDULE = ScheduleConfig(shape="linear", epochs=10, warmup_epochs=1)  # only the share of the warm-up counts


def train(
    task: Task,
    dataset: ArrayDataset,
    widths: tuple[int, int],
    batch: int,
    steps: int,
    seconds: float | None,
    seed: int,
    device: torch.device,
    out: Path,
) -> None:
    """Only the training split is seen: what is chosen later is chosen on the validation split.

    If `seconds` pass before all steps are done, the learning rate falls faster, and fewer steps are taken.
    """
    torch.manual_seed(derive_seed(seed, "weights", task.name))
    size = picture_size(dataset)
    scorer = task.network(len(dataset.classes), dataset.channels, *widths).build(size, dataset.mean, dataset.std)
    scorer.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    window = scorer.footprint.regions(parse_threat(PATCH, size)).extent
    optimizers = MuonConfig(lr=0.06).build(scorer)
    pictures = training_pictures(dataset.split("train"), batch, seed, device)
    torch.backends.cudnn.benchmark = True
    scorer.train()
    begun, step, progress = time.monotonic(), 0, 0.0
    while progress < 1:
        set_rates(optimizers, SCHEDULE.factor(int(progress * PARTS), PARTS))
        part = next(pictures)
        loss = task.loss(half_precision(scorer, part.images), part, window)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if step % max(1, steps // 10) == 0:
            print(f"{task.name}: step {step} of {steps}, loss {float(loss.detach()):.4f}", flush=True)
        step += 1
        progress = max(step / steps, (time.monotonic() - begun) / seconds if seconds else 0.0)
    torch.backends.cudnn.benchmark = False
    facts = {
        "classes": list(dataset.classes),
        "data": {"name": dataset.name, "digest": dataset.digest},
        "patch": PATCH,
        "rule": "two-mask",
        "task": task.name,
        "seed": seed,
        "steps": step,
        "seconds": round(time.monotonic() - begun, 1),
        "batch": batch,
        "device": device_name(device),
        "versions": versions(),
    }
    save_scorer(out, scorer, rounded({name: value.cpu() for name, value in scorer.state_dict().items()}), facts)


def half_precision(scorer: BuiltScorer, images: torch.Tensor) -> torch.Tensor:
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
        scores: torch.Tensor = scorer(images.contiguous(memory_format=torch.channels_last))
    return scores
