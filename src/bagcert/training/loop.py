"""Train a recipe into a run folder. A run that was killed at any moment can be resumed."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bagcert.data import FolderDataset, load_dataset
from bagcert.data.base import Dataset
from bagcert.distributed import World, joined_world
from bagcert.errors import UsageError
from bagcert.training.memory import check_weights, free_memory, gigabytes, measure, used_memory
from bagcert.training.recipe import Recipe
from bagcert.training.reporter import Reporter
from bagcert.training.run import Run, RunFolder
from bagcert.training.sync import Stopped, StopRequest, stop_signals
from bagcert.training.trainer import Objective, Trainer


class Meter:
    """Losses since the last log line, and the pace since the start."""

    def __init__(self, step: int, steps: int, batch_size: int) -> None:
        self.losses: list[Tensor] = []  # on the device, possibly not yet computed
        self.steps, self.batch_size = steps, batch_size
        self._first, self._begun = step, time.monotonic()
        self._last = (step, self._begun)
        self._waited = 0.0

    def loss(self, world: World) -> float:
        """The mean loss since the last call, over all processes; waits for the device."""
        mean = world.sum(torch.stack(self.losses).mean()) / world.size
        self.losses.clear()
        return float(mean)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Measure the time inside: the wait for the next images."""
        begun = time.monotonic()
        yield
        self._waited += time.monotonic() - begun

    def waited(self) -> float:
        """The share of the time since the last `pace` that was spent waiting for images.

        The device waits at most that long: it may still be busy with earlier steps.
        """
        share = self._waited / max(time.monotonic() - self._last[1], 1e-9)
        self._waited = 0.0
        return min(1.0, share)

    def rest(self) -> None:
        """Leave the time since the last `pace` out of the next one: it was not spent on steps."""
        self._last = (self._last[0], time.monotonic())

    def pace(self, step: int) -> tuple[float, float]:
        """Images per second since the last call, and the remaining seconds at the mean pace."""
        now = time.monotonic()
        before, then = self._last
        self._last = (step, now)
        speed = (step - before) * self.batch_size / max(now - then, 1e-9)
        return speed, (now - self._begun) / (step - self._first) * (self.steps - step)


WARMUP_STEPS = 10  # torch.compile and the choice of kernels happen here
TIMED_STEPS = 30
RESERVE = 0.03  # of the time left, for checkpoints and slower moments


def fit_steps(trainer: Trainer, evaluate: Callable[[], object], evaluations: int, deadline: float) -> int:
    """The number of steps that end before `deadline` (time.monotonic). The trainer is left as it was."""
    each = step_seconds(trainer, WARMUP_STEPS, TIMED_STEPS)
    evaluate()  # the first one chooses kernels
    evaluation_seconds = _seconds(trainer, evaluate)
    left = (deadline - time.monotonic()) * (1 - RESERVE) - evaluations * evaluation_seconds
    steps = int(trainer.world.share(left // each))
    if steps < 1:
        raise UsageError(f"No time is left for a step, which takes {each:.2g} s. Allow more --minutes.")
    return steps


def step_seconds(trainer: Trainer, warmup: int, timed: int) -> float:
    """The time of a step, from a few of them. The trainer is left as it was."""
    before = {name: value.clone() for name, value in trainer.state().items()}
    batches, steps = trainer.batches(0), warmup + timed
    for step in range(warmup):
        trainer.step(step, steps, next(batches))
    seconds = _seconds(trainer, lambda: [trainer.step(step, steps, next(batches)) for step in range(warmup, steps)])
    trainer.load_state(before)
    return seconds / timed


def expected_seconds(run: Run) -> float:
    """How long all steps and evaluations take, roughly. A pass to certify takes a third of one to train."""
    recipe = run.trainer.recipe
    pictures = recipe.evaluation.images or len(run.validation)
    passes = recipe.evaluation.times * pictures * run.trainer.scorer.passes
    certified = passes / (3 * recipe.training.batch_size)  # in steps
    return step_seconds(run.trainer, warmup=1, timed=2) * (run.steps + certified)


def _seconds(trainer: Trainer, work: Callable[[], object]) -> float:
    _wait(trainer.world.device)
    begun = time.monotonic()
    work()
    _wait(trainer.world.device)
    return time.monotonic() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True)
class RunOptions:
    """What the caller chooses besides the recipe."""

    out: Path
    data_dir: Path | None = None
    seed: int = 0
    minutes: float | None = None
    final: bool = False  # train on the validation images too
    resume: bool = False
    told: str = ""  # of the data and what will be done with it; followed by how long it takes


def train(recipe: Recipe, options: RunOptions) -> None:
    """Train from the start or from the checkpoint. Raises `Stopped` after SIGINT or SIGTERM."""
    deadline = time.monotonic() + 60 * (options.minutes or 0)
    folder = RunFolder(options.out)
    folder.check(options.resume)
    resumes = folder.checkpoint.exists()  # checked before any other process can write one
    with joined_world() as world, stop_signals() as stop:
        _tune(world.device)
        dataset = load_dataset(recipe.data.name, options.data_dir, recipe.data.folder(recipe.network.channels))
        if isinstance(dataset, FolderDataset) and dataset.broken and world.is_main:
            folder.list_broken(list(dataset.broken.values()))
        source = dataset.split("train+validation" if options.final else "train")
        check_weights(recipe, dataset, free_memory(world.device))
        trainer = Trainer(recipe, dataset, source, options.seed, world)
        run = Run(folder, trainer, dataset, final=options.final)
        needed = _check_memory(trainer, dataset)
        if resumes:
            run.restore()
        else:
            if world.is_main:  # first of all, so that an unwritable folder shows at once
                folder.write_recipe(recipe)
            if options.minutes is not None:
                run.steps = fit_steps(trainer, run.evaluate, recipe.evaluation.times, deadline)
            if options.told:
                left = expected_seconds(run) if options.minutes is None else deadline - time.monotonic()
                _tell(options.told, needed, left, run)
            run.save()
        with Reporter(folder.path, run.step, run.steps, silent=not world.is_main) as reporter:
            _steps(run, reporter, stop)
            run.finish()


def _check_memory(trainer: Trainer, dataset: Dataset) -> int:
    """Refuse what does not fit into memory; else, how much of it this process will take."""
    device, processes = trainer.world.device, trainer.world.size
    demand = measure(Objective(trainer.scorer, trainer.loss), trainer.scorer, dataset, device)
    free = free_memory(device)
    if free is not None:
        demand.check(trainer.recipe, free if device.type == "cuda" else free // processes, processes)
    return used_memory(device) + demand.total(trainer.recipe, processes)


def _tell(told: str, needed: int, seconds: float, run: Run) -> None:
    """Say what was found in a folder, what will be done with it, and how long that takes."""
    trainer = run.trainer
    if trainer.world.is_main:
        epochs = run.steps / trainer.steps_per_epoch
        length = f"{epochs:.3g} epoch{'s' * (epochs != 1)} in about {about(seconds)}"
        patch = trainer.recipe.evaluation.patch
        print(f"{told} against {patch} patches; about {gigabytes(needed)}; {length}", flush=True)


def about(seconds: float) -> str:
    """A time that is only known roughly."""
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(1, seconds):.0f} seconds"


def _steps(run: Run, reporter: Reporter, stop: StopRequest) -> None:
    """Take all remaining steps."""
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
        # This process waits for the device only here, in evaluations and for checkpoints.
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
    """The steps after which to evaluate: evenly spread, including the last step."""
    return {steps - (steps * part) // times for part in range(times)}


def _tune(device: torch.device) -> None:
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
