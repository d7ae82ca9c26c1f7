"""The run folder: resolved recipe, log, checkpoint, and at the end the weights with their card.

recipe.toml              the resolved recipe
log.jsonl, tensorboard/  numbers over the steps
broken.txt               the images that were left out, and why; only if there are any
checkpoint.safetensors   all that training needs to go on; gone when the run is finished
weights.safetensors      the final weights, float32
config.json              what the weights are, their SHA-256, and how they came about
"""

import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.files import pack_tensors, sha256, write_atomically, write_json
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.saved import CHECKPOINT, CONFIG, FORMAT, WEIGHTS, scorer_table
from bagcert.settings import write_toml
from bagcert.training.recipe import Recipe


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
            raise UsageError(f"expected a new --out, got {self.path}, which holds a finished run; choose another")
        if self.checkpoint.exists() and not resume:
            raise UsageError(f"expected a new --out, got {self.path}, which holds a run; add --resume to go on with it")

    def write_recipe(self, recipe: Recipe) -> None:
        write_atomically(self.path / "recipe.toml", write_toml(recipe.table()).encode())

    def list_broken(self, complaints: Sequence[str]) -> None:
        """Say which images are not trained on."""
        write_atomically(self.broken, "".join(f"{complaint}\n" for complaint in complaints).encode())
        print(f"left out {len(complaints)} images that cannot be read: {self.broken}", file=sys.stderr)


def save_run(folder: RunFolder, scorer: BuiltScorer, weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write weights and card. The card comes last and names the weights' digest: no card, no finished run."""
    content = pack_tensors(weights, {})
    write_atomically(folder.weights, content)
    card = {"format": FORMAT, "weights_sha256": sha256(content), "scorer": scorer_table(scorer), **facts}
    write_json(folder.config, card)
    folder.checkpoint.unlink(missing_ok=True)


def versions() -> dict[str, str]:
    try:
        own = metadata.version("bagcert")
    except metadata.PackageNotFoundError:
        own = "not installed"  # run from its source folder
    return {"bagcert": own, "python": platform.python_version(), "torch": torch.__version__}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"
