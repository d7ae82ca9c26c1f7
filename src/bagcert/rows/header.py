"""What the file beside the rows says: what was certified with what, enough to check it without the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bagcert.data import Dataset, FolderSettings, Framing, load_dataset
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.program import Program
from bagcert.scorers.base import Scorer


def describe(
    name: str, defense: Defense, dataset: Dataset, split: str, program: Program | None = None
) -> dict[str, Any]:
    """Model, data, network, and the program that computes the scores: the defense's own unless `program` is given."""
    card = defense.card
    return {
        "kind": "certificates",
        "model": name,
        "weights_sha256": card["weights_sha256"],
        "recipe": card.get("recipe"),
        "seed": card.get("seed"),
        "card": {"patch": card.get("patch"), "rule": card.get("rule")},
        "data": {"name": dataset.name, "digest": dataset.digest},
        "split": split,
        "classes": list(dataset.classes),
        **describe_scores(defense.scorer),
        "batch_size": defense.batch_size,
        **(program or defense.program).describe(),
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


def framed_dataset(name: str, image_size: Sequence[int], data_dir: Path | None) -> Dataset:
    """A data set for images of this size.

    Pictures in a folder are scaled until the shorter side fits (256 for 224, as is usual), then cut.
    """
    crop = min(image_size)
    return load_dataset(name, data_dir, FolderSettings(Framing(256 if crop == 224 else crop, crop)))


def fitting_dataset(name: str, defense: Defense, data_dir: Path | None) -> Dataset:
    """The data set, refused if its images or classes are not those of the model."""
    height, width = defense.threat.image_size
    dataset = framed_dataset(name, (height, width), data_dir)
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
