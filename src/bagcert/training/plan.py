"""From a folder of pictures to a recipe: what the pictures decide, so that nobody has to set it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from bagcert.config import write_config
from bagcert.data.base import VALIDATION_SHARE
from bagcert.data.catalog import NATIVE_SIZES
from bagcert.data.inspection import Look, look_at
from bagcert.pictures import Framing
from bagcert.scorers.weights import DEFAULT_NETWORK, load_scorer
from bagcert.scorers.wrapped import OwnConfig
from bagcert.stored_models import model_folder
from bagcert.threats import parse_threat
from bagcert.training.recipe import DataConfig, Recipe, read_recipe, recipe_table, resolve

# The recipe for pictures whose shorter side has at most so many pixels.
BY_SIZE = {16: "digits", 48: "folder-32"}
LARGER = "folder-64"
STARTED = {False: "start", True: "start-head"}  # from the weights of a model, which may be frozen
SCALED_FROM = 1.5  # times the size of the recipe: larger pictures are scaled down
RESIDENT = 2**30  # bytes of pixels that are kept in memory
LEAST_STEPS = 4  # per epoch; small folders get smaller batches


@dataclass(frozen=True)
class Planned:
    """A recipe for a folder, and what to tell before the first step."""

    recipe: Recipe
    told: str


@dataclass(frozen=True)
class Origin:
    """Where the network comes from, if not from the recipe: a model to start from, or the caller's own."""

    start: str | None = None
    freeze: bool = False
    own: bool = False


def plan_folder(folder: Path, name: str | None, overrides: Sequence[str], origin: Origin | None = None) -> Planned:
    """The named recipe, or the one for pictures of this size, fitted to the folder. Overrides have the last word.

    Started from a model, network and size of the pictures are those of the model.
    """
    origin = origin or Origin()
    start = origin.start
    look = look_at(folder)
    name = name or (STARTED[origin.freeze] if start else default_recipe(look))
    table = recipe_table(name)
    meant = read_recipe(table)  # a mistake in it is named before anything is changed
    data, network = table.setdefault("data", {}), table.setdefault("network", {})
    data.update(frame(look, meant.data))
    step = {key: value for key, value in network.items() if key == "step"}  # it belongs to loss and rule
    if origin.own and not meant.network.brings_weights:
        table["network"] = {"name": OwnConfig.name, **step}
    table["network"]["channels"] = 1 if look.gray else 3
    if start:
        take_model(start, table)
        table["network"].update(step)
        table["training"]["freeze"] = origin.freeze
    table["network"]["classes"] = look.classes
    pixels = look.pictures * table["network"]["channels"] * prod(data["crop"])
    data.update(name=str(folder), resident=data.get("resident", pixels <= RESIDENT))
    held_out = look.training // VALIDATION_SHARE
    for section, batch_size, most in (
        ("training", meant.training.batch_size, (look.training - held_out) // LEAST_STEPS),
        ("evaluation", meant.evaluation.batch_size, held_out),
    ):
        table.setdefault(section, {})["batch_size"] = max(1, min(batch_size, most))
    recipe = in_pixels(resolve(table, overrides))
    height, width = recipe.data.image_size
    weights = f" from the weights of {start}" if start else ""
    return Planned(recipe, f"{look}: training at {height}x{width} with recipe {name}{weights}")


def in_pixels(recipe: Recipe) -> Recipe:
    """The recipe with its patch in pixels of the folder's pictures, if it is a share of them."""
    threat = parse_threat(recipe.evaluation.patch, recipe.data.image_size)
    if not threat.shapes:
        return recipe
    return replace(recipe, evaluation=replace(recipe.evaluation, patch=str(threat)))


def default_recipe(look: Look) -> str:
    return next((name for side, name in BY_SIZE.items() if min(look.typical) <= side), LARGER)


def frame(look: Look, data: DataConfig) -> dict[str, Any]:
    """Keys of [data]: pictures of one size stay as they are; others are scaled down to the size of the recipe.

    Pictures are never enlarged, except those of a folder that are smaller than half of its pictures.
    """
    meant = NATIVE_SIZES.get(data.name) or min(data.image_size)
    if look.uniform and max(look.typical) <= SCALED_FROM * meant:
        return {"resize": min(look.typical), "crop": list(look.typical)}  # larger ones that come later are scaled
    side = min(meant, *look.typical)
    return {"resize": data.resize if (side, side) == data.image_size else side, "crop": [side, side]}


def take_model(model: str, table: dict[str, Any]) -> None:
    """Put network and framing of a model into a recipe's tables."""
    scorer, card = load_scorer(model_folder(model))
    framing = Framing.on_card(card.get("framing"), scorer.footprint.image_size, scorer.channels)
    table["network"] = {"name": DEFAULT_NETWORK, **write_config(scorer.config)}
    table["data"].update(
        crop=list(framing.size), resize=framing.resize, fit=framing.fit, interpolation=framing.interpolation
    )
    table["training"] = {**table.get("training", {}), "start": model}
