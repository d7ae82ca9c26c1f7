"""Train a network for a task on pictures of tiles, and keep it as a run folder; an interrupted training continues."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from bagcert.data import ArrayDataset
from bagcert.data.base import derive_seed
from bagcert.files import pack_tensors, read_tensors, write_atomically
from bagcert.program import device_name, versions
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.weights import CHECKPOINT, load_scorer, rounded, save_scorer
from bagcert.stored_models import model_folder
from bagcert.threats import parse_threat
from bagcert.training.initial_weights import POSITIONS
from bagcert.training.optimizers import MuonConfig
from bagcert.training.schedule import set_rates
from studies.common.training import SCHEDULE
from studies.labels.tasks import Task
from studies.labels.tiles import SIDE, picture_size, training_pictures

PATCH = "5x5"  # that training prepares for
PARTS = 10_000  # of a schedule
CHECKPOINT_SECONDS = 20.0

Optimizers = list[torch.optim.Optimizer]


@dataclass(frozen=True)
class Settings:
    """How a network is trained."""

    widths: tuple[int, int] = (96, 288)  # narrow, wide
    start_from: str | None = None  # a model of single tiles, whose network is taken
    lr: float = 0.06
    batch: int = 125  # pictures
    steps: int = 1800
    seconds: float | None = None  # if these pass before all steps are done, the rate falls faster: fewer steps
    seed: int = 0


def train(task: Task, dataset: ArrayDataset, settings: Settings, device: torch.device, out: Path) -> None:
    """Only the training split is seen, but for what the model of the start has seen."""
    seed, steps, seconds = settings.seed, settings.steps, settings.seconds
    torch.manual_seed(derive_seed(seed, "weights", task.name))
    scorer = new_scorer(task, dataset, settings)
    scorer.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    window = scorer.footprint.regions(parse_threat(PATCH, picture_size(dataset))).extent
    optimizers = MuonConfig(lr=settings.lr).build(scorer)
    step, spent = resume(out / CHECKPOINT, scorer, optimizers)
    pictures = training_pictures(dataset.split("train"), settings.batch, seed, device, step)
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
        "batch": settings.batch,
        "start_from": settings.start_from,
        "device": device_name(device),
        "versions": versions(),
    }
    save_scorer(out, scorer, rounded({name: value.cpu() for name, value in scorer.state_dict().items()}), facts)
    (out / CHECKPOINT).unlink(missing_ok=True)


def new_scorer(task: Task, dataset: ArrayDataset, settings: Settings) -> BuiltScorer:
    """With random weights, or with those of a model of single tiles: what it knows of positions holds in every tile."""
    size, classes, channels = picture_size(dataset), len(dataset.classes), dataset.channels
    if settings.start_from is None:
        return task.network(classes, channels, *settings.widths).build(size, dataset.mean, dataset.std)
    start, _ = load_scorer(model_folder(settings.start_from))
    scorer = start.config.build(size, dataset.mean, dataset.std)
    weights = start.state_dict()
    if POSITIONS in weights:
        weights[POSITIONS] = weights[POSITIONS].tile(SIDE, SIDE)
    scorer.load_state_dict(weights)
    return scorer


def half_precision(scorer: BuiltScorer, images: Tensor) -> Tensor:
    """Faster on a processor, too, if it has instructions for bfloat16."""
    with torch.autocast(images.device.type, dtype=torch.bfloat16):
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
