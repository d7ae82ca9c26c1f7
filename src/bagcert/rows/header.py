"""What the file beside the rows says: what was certified with what, enough to check it without the model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bagcert.config import write_config
from bagcert.data import Dataset, FolderSettings, load_dataset
from bagcert.data.catalog import LOADERS
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.hub import is_on_hub
from bagcert.scorers.base import Scorer


def describe(name: str, defense: Defense, dataset: Dataset, split: str) -> dict[str, Any]:
    """Model, data, network, and the program that computes the scores."""
    card = defense.card
    return {
        "kind": "certificates",
        "model": defense.name if is_on_hub(name) else name,  # of the Hub: with the commit
        "weights_sha256": card["weights_sha256"],
        "network": card.get("scorer", {}).get("network"),  # the same weights may be those of another one
        "recipe": card.get("recipe"),
        "seed": card.get("seed"),
        "card": {"patch": card.get("patch"), "rule": card.get("rule")},
        "data": describe_data(dataset),
        "split": split,
        "classes": list(dataset.classes),
        **describe_scores(defense.scorer),
        "batch_size": defense.batch_size,
        **defense.program.describe(),
    }


def describe_scores(scorer: Scorer) -> dict[str, Any]:
    """What the scores are, and which part of the image each of them sees."""
    step, footprint = scorer.step, scorer.footprint
    return {
        "scores": {"step": step.name, "unit": step.unit, "bounds": list(step.bounds)},
        "footprint": {
            "image_size": list(footprint.image_size),
            "grid": list(footprint.grid),
            "receptive_field": list(footprint.receptive_field),
            **scorer.reach(),
        },
    }


def describe_data(dataset: Dataset) -> dict[str, Any]:
    """The data set, and how its pictures became images if they may have any size."""
    framing = {} if dataset.framing is None else {"framing": write_config(dataset.framing)}
    return {"name": dataset.name, "digest": dataset.digest, **framing}


def own_data(defense: Defense) -> str | None:
    """The data set that a model was trained on; None if its card names none, or a folder of somebody on the Hub."""
    data = defense.card.get("data")
    if not isinstance(data, Mapping) or "name" not in data or (is_on_hub(defense.name) and data["name"] not in LOADERS):
        return None  # a stranger's card must not choose a folder of this machine
    return str(data["name"])


def fitting_dataset(name: str | None, defense: Defense, data_dir: Path | None) -> Dataset:
    """The data set, by default the model's own, refused if its images or classes are not those of the model."""
    name = name or own_data(defense)
    if name is None:
        raise UsageError("The card of this model names no data. Add --data with a data set or a folder.")
    height, width = defense.threat.image_size
    dataset = load_dataset(name, data_dir, FolderSettings(defense.framing))
    if dataset.classes != defense.classes:
        odd = sorted(set(dataset.classes) ^ set(defense.classes)) or ["their order"]
        raise UsageError(
            f"The classes of {name} are not the {len(defense.classes)} of the model: they differ in '{odd[0]}'. "
            "Choose the data it was trained on, or name the folders after its classes."
        )
    channels = defense.scorer.channels or dataset.channels
    if (dataset.image_size, dataset.channels) != ((height, width), channels):
        raise UsageError(
            f"The images of {name} are {dataset.channels}x{dataset.image_size[0]}x{dataset.image_size[1]}, but the "
            f"model takes {channels}x{height}x{width}. Choose the data of the model."
        )
    return dataset
