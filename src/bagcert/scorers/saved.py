"""Saved scorers: weights as safetensors beside a config.json that rebuilds the network and names their digest.

No pickle is ever loaded. Weights may be stored in fewer bits (`stored.py`); arithmetic is float32 all the same.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.files import read_json, read_tensors, sha256
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.networks import kind_of, read_network
from bagcert.scorers.stored import restored
from bagcert.settings import write_config

FORMAT = "bagcert-run-1"
WEIGHTS, CONFIG, CHECKPOINT = "weights.safetensors", "config.json", "checkpoint.safetensors"


def scorer_table(scorer: BuiltScorer) -> dict[str, Any]:
    """What rebuilds the scorer, as JSON; its weights and data normalization are tensors."""
    size = list(scorer.footprint.image_size)
    return {"kind": kind_of(scorer.config), "image_size": size, "network": write_config(scorer.config)}


def read_scorer(table: object) -> BuiltScorer:
    """The inverse of `scorer_table`, with weights still to be loaded."""
    if not isinstance(table, Mapping) or set(table) != {"kind", "image_size", "network"}:
        raise UsageError(
            "expected kind, image_size and network of a scorer in config.json, got something else; copy the model again"
        )
    size = table["image_size"]
    config = read_network(table["network"])
    if table["kind"] != kind_of(config) or not isinstance(size, list) or [type(side) for side in size] != [int, int]:
        raise UsageError(
            f"expected a scorer of kind '{kind_of(config)}' for height x width pixels, "
            f"got {table['kind']!r} for {size!r}; copy the model again"
        )
    missing = write_config(config).keys() - table["network"].keys()
    if missing:  # a default would be another network than the one that was trained
        raise UsageError(
            f"expected all keys of network in config.json, got none for {', '.join(sorted(missing))}; train it again"
        )
    return config.build((size[0], size[1]), mean=(0.0,), std=(1.0,))


def load_scorer(folder: Path) -> tuple[BuiltScorer, dict[str, Any]]:
    """A saved scorer, on the CPU, in evaluation mode, and its config.json. Files that are not whole are refused."""
    weights, config = folder / WEIGHTS, folder / CONFIG
    if not config.is_file() or not weights.is_file():
        more = "; its training is not finished: bagcert train ... --resume" if (folder / CHECKPOINT).exists() else ""
        raise UsageError(f"expected a finished run with config.json and weights.safetensors, got {folder}{more}")
    card = read_json(config)
    if card.get("format") != FORMAT:
        raise UsageError(
            f"expected format {FORMAT} in {config}, got {card.get('format')!r}; train it with this version"
        )
    if card.get("weights_sha256") != sha256(weights.read_bytes()):
        raise UsageError(
            f"expected the weights named by SHA-256 in config.json, got other bytes in {weights}; copy the model again"
        )
    scorer = read_scorer(card.get("scorer"))
    tensors = restored(read_tensors(weights)[0])
    expected = {name: value.shape for name, value in scorer.state_dict().items()}
    if expected != {name: value.shape for name, value in tensors.items()}:
        raise UsageError(
            f"expected the tensors of the network in config.json, got others in {weights}; copy the model again"
        )
    scorer.load_state_dict(tensors)
    return scorer.eval(), card
