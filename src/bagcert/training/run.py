"""A run: the state of its training, and the folder that keeps it.

recipe.toml              the resolved recipe
log.jsonl, tensorboard/  numbers by step
broken.txt               the images that were left out, and why; only if there are any
checkpoint.safetensors   all that training needs to resume; removed when the run is finished
weights.safetensors      the final weights, float32
config.json              the card: the network, the SHA-256 of its weights, and how they were trained
"""

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.config import write_config, write_toml
from bagcert.data.base import Dataset
from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_tensors, remove_parts, write_atomically
from bagcert.pictures import Framing
from bagcert.program import device_name, versions
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.weights import CHECKPOINT, CONFIG, WEIGHTS, save_scorer
from bagcert.training.recipe import Recipe
from bagcert.training.trainer import Trainer
from bagcert.training.validation import Accuracy, defense_of, validate


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / CHECKPOINT

    @property
    def weights(self) -> Path:
        return self.path / WEIGHTS

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def broken(self) -> Path:
        return self.path / "broken.txt"

    def check(self, resume: bool) -> None:
        """Refuse to train over another run."""
        if self.config.exists():
            raise UsageError(f"{self.path} holds a finished run. Choose another --out.")
        if self.checkpoint.exists() and not resume:
            raise UsageError(f"{self.path} holds an unfinished run. Add --resume, or choose another --out.")

    def write_recipe(self, recipe: Recipe) -> None:
        write_atomically(self.path / "recipe.toml", write_toml(recipe.table()).encode())

    def list_broken(self, complaints: Sequence[str]) -> None:
        """List the images that were left out."""
        write_atomically(self.broken, "".join(f"{complaint}\n" for complaint in complaints).encode())
        print(f"left out {len(complaints)} images that cannot be read: {self.broken}", file=sys.stderr)


def save_run(folder: RunFolder, scorer: BuiltScorer, weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write weights and card, and remove the checkpoint."""
    save_scorer(folder.path, scorer, weights, facts)
    folder.checkpoint.unlink(missing_ok=True)


class Diverged(UsageError):
    """The loss or the weights have become NaN or infinite."""


class Run:
    """A trainer with its progress and its folder. Only the main process writes."""

    def __init__(self, folder: RunFolder, trainer: Trainer, dataset: Dataset, final: bool) -> None:
        self.folder, self.trainer, self.dataset, self.final = folder, trainer, dataset, final
        self.validation = dataset.split("validation")
        # A patch or rule that does not fit the scorer is refused here, not at the first evaluation.
        defense_of(trainer.scorer, dataset.classes, trainer.recipe.evaluation, trainer.world).check()
        self.step = 0
        self.steps = max(1, round(trainer.recipe.schedule.epochs * trainer.steps_per_epoch))
        self.accuracy: Accuracy | None = None
        self._seconds, self._begun = 0.0, time.monotonic()

    @property
    def seconds(self) -> float:
        """The time spent on the run, over all its resumptions."""
        return self._seconds + time.monotonic() - self._begun

    @property
    def identity(self) -> dict[str, Any]:
        """What must stay the same when a run is resumed."""
        return {
            "recipe": self.trainer.recipe.table(),
            "seed": self.trainer.seed,
            "final": self.final,
            "data": self.dataset.digest,
        }

    def restore(self) -> None:
        """Continue from the checkpoint."""
        if self.trainer.world.is_main:
            remove_parts(self.folder.checkpoint)
        tensors, facts = read_tensors(self.folder.checkpoint)
        if facts.get("identity") != self.identity:
            raise UsageError(
                f"The checkpoint in {self.folder.path} has another recipe, seed or data. "
                "Repeat the command that started the run, or choose another --out."
            )
        try:
            self.trainer.load_state(tensors)
            self.step, self.steps, self._seconds = facts["step"], facts["steps"], facts["seconds"]
        except (KeyError, RuntimeError) as error:
            raise UsageError(
                f"{self.folder.checkpoint} does not hold the tensors of the run: {error}. Choose another --out."
            ) from error

    def save(self) -> None:
        """Write a checkpoint, unless the weights have become NaN or infinite."""
        if not self.trainer.world.is_main:
            return
        state = self.trainer.state()
        finite = torch.stack([value.isfinite().all() for value in state.values() if value.is_floating_point()])
        if not bool(finite.all()):
            raise self.diverged()
        facts = {"identity": self.identity, "step": self.step, "steps": self.steps, "seconds": self.seconds}
        write_atomically(self.folder.checkpoint, pack_tensors(state, facts))

    def diverged(self) -> Diverged:
        return Diverged(
            f"The loss is NaN or infinite by step {self.step}. The last good checkpoint is kept in "
            f"{self.folder.path}. Lower optimizer.lr."
        )

    def evaluate(self) -> Accuracy:
        """Accuracies on the validation split. With `final` its images are trained on, so the numbers are too good."""
        trainer = self.trainer
        weights = trainer.weights() if trainer.average is not None else None
        evaluation = trainer.recipe.evaluation
        return validate(trainer.scorer, weights, self.validation, self.dataset.classes, evaluation, trainer.world)

    def finish(self) -> None:
        """Write the final weights and their card."""
        trainer, recipe = self.trainer, self.trainer.recipe
        accuracy = self.accuracy or self.evaluate()  # none yet if resumed after the last step
        if not trainer.world.is_main:
            return
        framing = self.dataset.framing or Framing.usual(self.dataset.image_size, self.dataset.channels)
        facts = {
            "classes": list(self.dataset.classes),
            "data": {"name": recipe.data.name, "digest": self.dataset.digest},
            "framing": write_config(framing),
            "patch": recipe.evaluation.patch,
            "rule": recipe.evaluation.rule,
            "validation": {
                "clean": accuracy.clean,
                "certified": accuracy.certified,
                "images": accuracy.images,
                "trained_on": self.final,
            },
            "recipe": recipe.table(),
            **({"start": trainer.start} if trainer.start else {}),
            **({"weights_from": trainer.foreign} if trainer.foreign else {}),
            "seed": trainer.seed,
            "steps": self.steps,
            "seconds": round(self.seconds, 1),
            "device": device_name(trainer.world.device),
            "processes": trainer.world.size,
            "versions": versions(),
        }
        save_run(self.folder, trainer.scorer, trainer.weights(), facts)
