"""A recipe: everything that decides what is trained, as a TOML file of differences from the paper's defaults."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from bagcert.config import Key, apply_override, read_choice, read_config, write_config
from bagcert.data import FolderSettings
from bagcert.errors import UsageError, unknown_name
from bagcert.pictures import Framing
from bagcert.scorers.base import NetworkConfig
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import DEFAULT_NETWORK, NETWORKS, read_network
from bagcert.training.losses import LOSSES, Loss, MarginLoss
from bagcert.training.optimizers import OPTIMIZERS, AdamConfig, OptimizerConfig
from bagcert.training.schedule import ScheduleConfig


@dataclass(frozen=True)
class DataConfig:
    """The data set, and how training images are augmented."""

    name: Annotated[str, Key("data set by name, or folder of pictures")] = "cifar10"
    flip: Annotated[bool, Key("mirror training pictures at random")] = True  # App. A.1.1
    crop_padding: Annotated[int, Key("shift training pictures at random by up to so many pixels", 0, 1000)] = 4
    # For image folders only. The defaults are the usual ones for ImageNet.
    resize: Annotated[int, Key("folders: scale the shorter side to this length; 0: leave it", 0, 10_000)] = 256
    crop: Annotated[
        int | tuple[int, ...], Key("folders: side of the square to cut out, or height and width", 1, 10_000)
    ] = 224
    fit: Annotated[str, Key("folders: crop, or squash: the whole picture, each side scaled separately")] = "crop"
    interpolation: Annotated[
        str, Key("folders: box, or bilinear: smoother, but proves smaller patches in the pictures' own pixels")
    ] = "box"
    resident: Annotated[bool, Key("folders: decode all pictures once and keep them on the device")] = False
    skip_broken: Annotated[bool, Key("folders: leave out pictures that cannot be read")] = False

    def __post_init__(self) -> None:
        if isinstance(self.crop, tuple) and len(self.crop) != 2:
            raise UsageError(f"The value of data.crop must be a side, or height and width, but is {list(self.crop)}.")

    @property
    def image_size(self) -> tuple[int, int]:
        """The height and width of a folder's images."""
        height, width = self.crop if isinstance(self.crop, tuple) else (self.crop, self.crop)
        return height, width

    def folder(self, channels: int) -> FolderSettings:
        """How a folder is read for a network of so many channels."""
        framing = Framing(self.image_size, self.resize, channels, self.fit, self.interpolation)
        return FolderSettings(framing, skip_broken=self.skip_broken, resident=self.resident)


@dataclass(frozen=True)
class TrainingConfig:
    """How training takes its steps."""

    batch_size: Annotated[int, Key("pictures per step, over all devices", most=10**6)] = 96  # App. A.1.1
    average: Annotated[float, Key("decay of the average of weights that is kept; 0: the last weights")] = 0.0
    start: Annotated[str, Key("model or run folder whose weights to begin with, under a new head; none: random")] = ""
    weights: Annotated[str, Key("file of weights for a network of your own, .safetensors or .pth; none: its own")] = ""
    freeze: Annotated[bool, Key("train only the new head of a network that was started from a model")] = False
    checkpoint_seconds: Annotated[float, Key("seconds between checkpoints", 0, 10**6)] = 120.0

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UsageError(f"The value of training.batch_size must be at least 1, but is {self.batch_size}.")
        if not 0 <= self.average < 1:
            raise UsageError(f"The value of training.average must be at least 0 and below 1, but is {self.average}.")
        if self.freeze and not self.start:
            raise UsageError("Layers can be frozen only if they come from a model. Add --start-from MODEL.")


@dataclass(frozen=True)
class EvaluationConfig:
    """What to certify on the validation split, and how often. Patch and rule become defaults of the trained defense."""

    patch: Annotated[str, Key("patch to train for and to certify against")] = "5x5"
    rule: Annotated[str, Key("rule that predicts and certifies")] = "every-region"
    times: Annotated[int, Key("how often to certify, spread evenly over the run")] = 10
    batch_size: Annotated[int, Key("pictures to certify at once", most=10**6)] = 500
    images: Annotated[int, Key("certify only so many, rounded up to whole batches; 0: all")] = 0

    def __post_init__(self) -> None:
        if min(self.times, self.batch_size) < 1:
            raise UsageError(
                "The values of evaluation.times and evaluation.batch_size must be at least 1, "
                f"but are {self.times} and {self.batch_size}."
            )
        if self.images < 0:
            raise UsageError(f"The value of evaluation.images must be at least 0, but is {self.images}.")


@dataclass(frozen=True)
class Recipe:
    """All sections of a recipe; the defaults train the paper's CIFAR-10 network of receptive field 7."""

    data: DataConfig = field(default_factory=DataConfig)
    network: NetworkConfig = field(default_factory=ResidualConfig)
    loss: Loss = field(default_factory=MarginLoss)
    optimizer: OptimizerConfig = field(default_factory=AdamConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def table(self) -> dict[str, Any]:
        """The resolved recipe as nested tables."""
        return {section: write_config(getattr(self, section)) for section in SECTIONS}


SECTIONS = ("data", "network", "loss", "optimizer", "schedule", "training", "evaluation")
CHOICES: dict[str, Mapping[str, type[Any]]] = {"network": NETWORKS, "loss": LOSSES, "optimizer": OPTIMIZERS}


def load_recipe(name: str, overrides: Sequence[str] = ()) -> Recipe:
    """A shipped recipe by its name, or a TOML file by its path, with `section.key=value` overrides."""
    return resolve(recipe_table(name), overrides)


def resolve(table: dict[str, Any], overrides: Sequence[str]) -> Recipe:
    """The recipe of nested tables, which overrides change in place."""
    for override in overrides:
        apply_override(table, override, CHOICES)
    return read_recipe(table)


def read_recipe(table: dict[str, Any]) -> Recipe:
    """A recipe from nested tables."""
    values: dict[str, Any] = {}
    hints = Recipe.__dataclass_fields__
    for section, inner in table.items():
        if section not in SECTIONS:
            raise unknown_name("recipe section", section, SECTIONS)
        if section == "network":
            values[section] = read_network(inner)
        elif section in CHOICES:
            values[section] = read_choice(CHOICES[section], inner, section)
        else:
            kind = hints[section].type
            assert isinstance(kind, type)
            values[section] = read_config(kind, inner, section)
    return Recipe(**values)


def recipe_names() -> list[str]:
    """The names of all shipped recipes."""
    names = (entry.name for entry in _shipped().iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def _shipped() -> Traversable:
    return resources.files("bagcert") / "recipes"


def recipe_text(name: str) -> str:
    """The TOML of a shipped recipe, or of a file."""
    if name.endswith(".toml"):
        path: Traversable = Path(name)
        if not path.is_file():
            raise UsageError(f"The recipe file '{name}' does not exist. Check the path.")
    elif name in recipe_names():
        path = _shipped() / f"{name}.toml"
    else:
        raise unknown_name("recipe", name, recipe_names())
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the recipe '{name}': {error}.") from error


def recipe_table(name: str, depth: int = 0) -> dict[str, Any]:
    """What a recipe and the recipes it is based on say, without defaults."""
    try:
        table = tomllib.loads(recipe_text(name))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"Cannot read the recipe '{name}': {error}.") from error
    except RecursionError:
        raise UsageError(f"Cannot read the recipe '{name}': it is nested too deeply. Use sections of keys.") from None
    base, network = table.pop("base", None), table.get("network", {})
    if base is None:
        # The name is filled in here, so that an override of it is seen as one: it drops the keys of the other kind.
        return {**table, "network": {"name": DEFAULT_NETWORK, **network}} if isinstance(network, dict) else table
    if not isinstance(base, str) or depth > 4:
        raise UsageError(f"The base of recipe '{name}' must be the name of another recipe, but is {base!r}.")
    return _merge(recipe_table(base, depth + 1), table)


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for section, inner in changes.items():
        before = merged.get(section, {})
        if not isinstance(inner, dict):
            raise UsageError(f"The value of {section} must be a table, but is {inner!r}.")
        other = section in CHOICES and "name" in inner and inner["name"] != before.get("name")
        merged[section] = inner if other else before | inner
    return merged
