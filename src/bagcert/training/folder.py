"""The run folder: resolved recipe, log, checkpoint, and at the end the weights with their card.

recipe.toml              the resolved recipe
log.jsonl, tensorboard/  numbers over the steps
checkpoint.safetensors   all that training needs to go on; gone when the run is finished
weights.safetensors      the final weights, float32
config.json              what the weights are, their SHA-256, and how they came about
"""

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.training.files import pack_tensors, read_json, read_tensors, sha256, write_atomically
from bagcert.training.recipe import Recipe
from bagcert.training.settings import read_config, write_config, write_toml

FORMAT = "bagcert-run-1"


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def weights(self) -> Path:
        return self.path / "weights.safetensors"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    def check(self, resume: bool) -> None:
        """Refuse to train over another run."""
        if self.config.exists():
            raise UsageError(f"expected a new --out, got {self.path}, which holds a finished run; choose another")
        if self.checkpoint.exists() and not resume:
            raise UsageError(f"expected a new --out, got {self.path}, which holds a run; add --resume to go on with it")

    def write_recipe(self, recipe: Recipe) -> None:
        write_atomically(self.path / "recipe.toml", write_toml(recipe.table()).encode())


def scorer_table(scorer: ResidualScorer) -> dict[str, Any]:
    """What rebuilds the scorer, as JSON; its weights and data normalization are tensors."""
    return {"kind": "residual", "image_size": list(scorer.image_size), "network": write_config(scorer.config)}


def read_scorer(table: object) -> ResidualScorer:
    """The inverse of `scorer_table`, with weights still to be loaded."""
    if not isinstance(table, Mapping) or set(table) != {"kind", "image_size", "network"}:
        raise UsageError("expected kind, image_size and network of a scorer in config.json, got something else")
    size = table["image_size"]
    if table["kind"] != "residual" or not isinstance(size, list) or [type(side) for side in size] != [int, int]:
        raise UsageError(f"expected a residual scorer for height x width pixels, got {table['kind']!r} for {size!r}")
    config = read_config(ResidualConfig, table["network"], "network")
    missing = write_config(config).keys() - table["network"].keys()
    if missing:  # a default would be another network than the one that was trained
        raise UsageError(f"expected all keys of network in config.json, got none for {', '.join(sorted(missing))}")
    return ResidualScorer(config, (size[0], size[1]))


def save_run(
    folder: RunFolder, scorer: ResidualScorer, weights: Mapping[str, Tensor], facts: Mapping[str, Any]
) -> None:
    """Write weights and card. The card comes last and names the weights' digest: no card, no finished run."""
    content = pack_tensors(weights, {})
    write_atomically(folder.weights, content)
    card = {"format": FORMAT, "weights_sha256": sha256(content), "scorer": scorer_table(scorer), **facts}
    write_atomically(folder.config, (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode())
    folder.checkpoint.unlink(missing_ok=True)


def load_run(folder: str | Path) -> ResidualScorer:
    """The scorer of a finished run, on the CPU, in evaluation mode. Files that are not whole are refused."""
    run = RunFolder(Path(folder))
    if not run.config.is_file() or not run.weights.is_file():
        more = "; its training is not finished: bagcert train ... --resume" if run.checkpoint.exists() else ""
        raise UsageError(f"expected a finished run with config.json and weights.safetensors, got {run.path}{more}")
    card = read_json(run.config)
    if card.get("format") != FORMAT:
        raise UsageError(f"expected format {FORMAT} in {run.config}, got {card.get('format')!r}")
    if card.get("weights_sha256") != sha256(run.weights.read_bytes()):
        raise UsageError(f"expected the weights that config.json names by SHA-256, got other bytes in {run.weights}")
    scorer = read_scorer(card.get("scorer"))
    tensors, _ = read_tensors(run.weights)
    expected = {name: value.shape for name, value in scorer.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise UsageError(f"expected the tensors of the network in config.json, got others in {run.weights}")
    scorer.load_state_dict(tensors)
    return scorer.eval()


def versions() -> dict[str, str]:
    try:
        own = metadata.version("bagcert")
    except metadata.PackageNotFoundError:
        own = "not installed"  # run from its source folder
    return {"bagcert": own, "python": platform.python_version(), "torch": torch.__version__}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"
