"""The first line of a rows file: what was certified with what, enough to check it without the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Dataset, FolderSettings, Framing, load_dataset
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.program import Program
from bagcert.scorers.ablation import AblationScorer
from bagcert.scorers.base import BuiltScorer, Scorer
from bagcert.scorers.residual import ResidualScorer
from bagcert.scorers.views import Hidden, HidingScorer
from bagcert.threats import Footprint, Layer
from bagcert.threats.footprint import pair


def describe(
    name: str, defense: Defense, dataset: Dataset, split: str, program: Program | None = None
) -> dict[str, Any]:
    """Model, data, network, and by what scores are computed: by another `program` than the defense's own, if given."""
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
    """What the scores are, and what each of them sees of the image."""
    step, footprint = scorer.step, scorer.footprint
    return {
        "scores": {"step": step.name, "unit": step.unit, "bounds": list(step.bounds)},
        "footprint": {
            "image_size": list(footprint.image_size),
            "grid": list(footprint.grid),
            "receptive_field": list(footprint.receptive_field),
            **reach_table(scorer),
        },
    }


def reach_table(scorer: Scorer) -> dict[str, Any]:
    """What makes the footprint: layers, what an ablation keeps, what views hide; nothing where none of them does."""
    if isinstance(scorer, AblationScorer):
        return {"kept": list(scorer.config.kept)}
    if isinstance(scorer, HidingScorer):
        hidden = scorer.hidden
        return {"hidden": {"rows": runs(hidden.rows), "columns": runs(hidden.columns)}}
    return {"layers": layer_table(scorer)} if isinstance(scorer, ResidualScorer) else {}


def runs(sets: Tensor) -> list[list[int]]:
    """First pixel and length of runs of pixels, given as flags [n pixels]."""
    return [[int(flags.long().argmax()), int(flags.sum())] for flags in sets]


def flags(found: list[list[int]], size: int) -> Tensor:
    """The inverse of `runs`."""
    pixel = torch.arange(size)
    return torch.stack([(pixel >= start) & (pixel < start + length) for start, length in found])


def read_footprint(table: dict[str, Any]) -> Footprint:
    """The footprint that a first line describes."""
    height, width = table["image_size"]
    if "kept" in table:
        rows, columns = table["kept"]
        return Footprint.ablation((rows, columns), (height, width))
    if "hidden" in table:
        axes = ((table["hidden"]["rows"], height), (table["hidden"]["columns"], width))
        return Hidden(*(flags(found, size) for found, size in axes)).footprint
    layers = [Layer(**{key: (pair[0], pair[1]) for key, pair in layer.items()}) for layer in table["layers"]]
    return Footprint.of_layers(layers, (height, width))


def layer_table(scorer: ResidualScorer) -> list[dict[str, list[int]]]:
    """Kernel, stride, dilation and padding of the layers that make the footprint, each for rows and columns."""
    config = scorer.config
    layers = [Layer(3, 1, 1, 1)]
    layers += [
        Layer(kernel, stride, 1, kernel // 2)
        for kernel, stride in zip(config.kernels, config.block_strides, strict=True)
    ]
    rebuilt = Footprint.of_layers(layers, scorer.image_size).branches
    assert len(rebuilt) == len(scorer.footprint.branches) == 1
    for mine, theirs in zip(rebuilt, scorer.footprint.branches, strict=True):
        assert torch.equal(mine.rows, theirs.rows) and torch.equal(mine.columns, theirs.columns)
    return [
        {key: list(pair(getattr(layer, key))) for key in ("kernel", "stride", "dilation", "padding")}
        for layer in layers
    ]


def framed_dataset(name: str, image_size: Sequence[int], data_dir: Path | None) -> Dataset:
    """A data set for images of this size.

    Pictures in a folder are scaled until the shorter side fits (256 for 224, as is usual), then cut.
    """
    crop = min(image_size)
    return load_dataset(name, data_dir, FolderSettings(Framing(256 if crop == 224 else crop, crop)))


def fitting_dataset(name: str, defense: Defense, data_dir: Path | None) -> Dataset:
    """The data set, refused where its images or classes are not those of the model."""
    height, width = defense.threat.image_size
    dataset = framed_dataset(name, (height, width), data_dir)
    if dataset.classes != defense.classes:
        odd = sorted(set(dataset.classes) ^ set(defense.classes)) or ["their order"]
        raise UsageError(
            f"expected the {len(defense.classes)} classes of the model in {name}, got a difference in '{odd[0]}'; "
            "choose the data it was trained on, or name the folders after its classes"
        )
    channels = defense.scorer.config.channels if isinstance(defense.scorer, BuiltScorer) else dataset.channels
    if (dataset.image_size, dataset.channels) != ((height, width), channels):
        raise UsageError(
            f"expected images of {channels}x{height}x{width} in {name}, got "
            f"{dataset.channels}x{dataset.image_size[0]}x{dataset.image_size[1]}; choose the data of the model"
        )
    return dataset
