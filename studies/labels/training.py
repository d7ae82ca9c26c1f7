"""Train a network for a task on pictures of tiles, and keep it as a run folder; an interrupted training continues."""

import time
from pathlib import Path

import torch
from torch import Tensor, nn

from bagcert.data import ArrayDataset
from bagcert.data.base import derive_seed
from bagcert.files import pack_tensors, read_tensors, write_atomically
from bagcert.program import device_name, versions
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.weights import CHECKPOINT, rounded, save_scorer
from bagcert.threats import parse_threat
from bagcert.training.optimizers import MuonConfig, ScheduleConfig, set_rates
from studies.labels.tasks import Task
from studies.labels.tiles import picture_size, training_pictures

PATCH = "5x5"  # that training prepares for
PARTS = 10_000  # of a schedule
SCHEDULE = ScheduleConfig(shape="linear", epochs=10, warmup_epochs=1)  # only the share of the warm-up counts
CHECKPOINT_SECONDS = 20.0

Optimizers = list[torch.optim.Optimizer]


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
    step, spent = resume(out / CHECKPOINT, scorer, optimizers)
    pictures = training_pictures(dataset.split("train"), batch, seed, device, step)
    torch.backends.cudnn.benchmark = True
    scorer.train()
    begun = saved = time.monotonic() - spent
    progress = step / steps
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
        now = time.monotonic()
        progress = max(step / steps, (now - begun) / seconds if seconds else 0.0)
        if now - saved > CHECKPOINT_SECONDS:
            save(out / CHECKPOINT, scorer, optimizers, step, now - begun)
            saved = now
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
    (out / CHECKPOINT).unlink(missing_ok=True)


def half_precision(scorer: BuiltScorer, images: Tensor) -> Tensor:
    with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=images.is_cuda):
        scores: Tensor = scorer(images.contiguous(memory_format=torch.channels_last))
    return scores


def save(path: Path, scorer: nn.Module, optimizers: Optimizers, step: int, spent: float) -> None:
    """Everything that the next step needs: weights, what optimizers remember, and how far the training is."""
    names = {id(parameter): name for name, parameter in scorer.named_parameters()}
    tensors = {f"weights/{name}": value for name, value in scorer.state_dict().items()}
    for optimizer in optimizers:
        for parameter, memory in optimizer.state.items():
            tensors |= {f"memory/{names[id(parameter)]}/{key}": value for key, value in memory.items()}
    stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    write_atomically(path, pack_tensors(stored, {"step": step, "spent": spent}))


def resume(path: Path, scorer: nn.Module, optimizers: Optimizers) -> tuple[int, float]:
    """Take up what was saved; the step to go on with, and the seconds spent before."""
    if not path.exists():
        return 0, 0.0
    stored, facts = read_tensors(path)
    weights = {name.removeprefix("weights/"): value for name, value in stored.items() if name.startswith("weights/")}
    scorer.load_state_dict(weights)
    parameters = dict(scorer.named_parameters())
    groups = [(optimizer, group["params"]) for optimizer in optimizers for group in optimizer.param_groups]
    owners = {id(parameter): optimizer for optimizer, several in groups for parameter in several}
    for path_in_file, value in stored.items():
        if path_in_file.startswith("memory/"):
            name, _, key = path_in_file.removeprefix("memory/").rpartition("/")
            parameter = parameters[name]
            kept = torch.empty_like(parameter) if value.dim() else torch.empty_like(value, device=parameter.device)
            owners[id(parameter)].state[parameter][key] = kept.detach().copy_(value)
    return int(facts["step"]), float(facts["spent"])
