"""Train a recipe into a run folder; killed at any moment, it resumes."""

import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from bagcert.data import FolderDataset, load_dataset
from bagcert.training.folder import RunFolder
from bagcert.training.interrupt import Stopped, StopRequest, stop_signals
from bagcert.training.meter import Meter
from bagcert.training.progress import Reporter
from bagcert.training.recipe import Recipe
from bagcert.training.run import Run
from bagcert.training.speed import fit_steps
from bagcert.training.trainer import Trainer
from bagcert.training.world import joined_world


@dataclass(frozen=True)
class Order:
    """What the caller asks for beside the recipe."""

    out: Path
    data_dir: Path | None = None
    seed: int = 0
    minutes: float | None = None
    final: bool = False  # train on the validation images too
    resume: bool = False


def train(recipe: Recipe, order: Order) -> None:
    """Train, from the start or from the checkpoint; raises `Stopped` after SIGINT or SIGTERM."""
    deadline = time.monotonic() + 60 * (order.minutes or 0)
    folder = RunFolder(order.out)
    folder.check(order.resume)
    resumes = folder.checkpoint.exists()  # asked before any other process can write one
    with joined_world() as world, stop_signals() as stop:
        _tune(world.device)
        dataset = load_dataset(recipe.data.name, order.data_dir, recipe.data.folder)
        if isinstance(dataset, FolderDataset) and dataset.broken and world.leads:
            folder.list_broken(list(dataset.broken.values()))
        source = dataset.split("train+validation" if order.final else "train")
        trainer = Trainer(recipe, dataset, source, order.seed, world)
        run = Run(folder, trainer, dataset, final=order.final)
        if resumes:
            run.restore()
        else:
            if world.leads:  # first of all: an unwritable folder shows now, not in an hour
                folder.write_recipe(recipe)
            if order.minutes is not None:
                run.steps = fit_steps(trainer, run.evaluate, recipe.evaluation.times, deadline)
            run.save()
        with Reporter(folder.path, run.step, run.steps, silent=not world.leads) as reporter:
            _steps(run, reporter, stop)
            run.finish()


def _steps(run: Run, reporter: Reporter, stop: StopRequest) -> None:
    """Take all steps that are left."""
    trainer, world, training = run.trainer, run.trainer.world, run.trainer.recipe.training
    log_every = max(1, min(50, run.steps // 500))
    marks = _marks(run.steps, trainer.recipe.evaluation.times)
    meter = Meter(run.step, run.steps, training.batch_size)
    saved = time.monotonic()
    batches = trainer.batches(run.step)
    while run.step < run.steps:
        with meter.waiting():
            batch = next(batches)
        meter.losses.append(trainer.step(run.step, run.steps, batch))
        run.step += 1
        # Only here, in evaluations and for checkpoints does this process wait for the device.
        logs = run.step % log_every == 0 or run.step == run.steps
        if logs:
            loss = meter.loss(world)
            if not math.isfinite(loss):
                raise run.diverged()
            waited = meter.waited()
            speed, left = meter.pace(run.step)
            reporter.row(run.step, {"loss": loss, "images_per_second": speed, "waited_for_images": waited})
            reporter.show(run.step, loss, speed, left)
        if run.step in marks:
            run.accuracy = run.evaluate()
            found = {"clean": run.accuracy.clean, "certified": run.accuracy.certified, "votes": run.accuracy.votes}
            reporter.row(run.step, found)
            reporter.accuracy(run.step, run.accuracy.clean, run.accuracy.certified)
            meter.rest()
        if (logs or world.size == 1) and stop.agreed(world):
            run.save()
            raise Stopped
        if time.monotonic() - saved >= training.checkpoint_seconds:
            run.save()
            saved = time.monotonic()


def _marks(steps: int, times: int) -> set[int]:
    """The steps after which to evaluate: evenly spread, the last step among them."""
    return {steps - (steps * part) // times for part in range(times)}


def _tune(device: torch.device) -> None:
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
