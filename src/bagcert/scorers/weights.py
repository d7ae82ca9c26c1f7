"""From a card to a network: the kinds of network by name, weights as they are stored, and run folders."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from bagcert.config import read_choice, write_config
from bagcert.errors import UsageError, first_line
from bagcert.files import pack_tensors, read_json, read_tensors, sha256, write_atomically, write_json
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import OWN, BuiltScorer, NetworkConfig, Scorer
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.covered import CoverConfig
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.interval import IntervalConfig
from bagcert.scorers.mixed import MixedConfig
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.wrapped import OwnConfig

# What a [network] table without a name means: the network of the paper.
DEFAULT_NETWORK = "residual"
NETWORKS: dict[str, type[NetworkConfig]] = {
    DEFAULT_NETWORK: ResidualConfig,
    EnsembleConfig.name: EnsembleConfig,
    MixedConfig.name: MixedConfig,
    AblationConfig.name: AblationConfig,
    CleanserConfig.name: CleanserConfig,
    IntervalConfig.name: IntervalConfig,
    OwnConfig.name: OwnConfig,
    CoverConfig.name: CoverConfig,
}


def read_network(table: object) -> NetworkConfig:
    """The config that a [network] table stands for."""
    if not isinstance(table, Mapping):
        raise UsageError(f"The value of network must be a table, but is {table!r}.")
    return read_choice(NETWORKS, {"name": DEFAULT_NETWORK, **table}, "network")


def kind_of(config: NetworkConfig) -> str:
    """The name that a card gives to this kind of network."""
    return next(name for name, kind in NETWORKS.items() if type(config) is kind)


SCALE = ":scale"  # after the name of a matrix; no parameter's name has a colon
LEVELS = 127


def rounded(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors as they are stored. Certificates hold for the weights that come back, not for these."""
    stored: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if not value.is_floating_point():
            stored[name] = value
        elif is_matrix(value):
            largest = value.float().abs().flatten(1).amax(dim=1)
            scale = (largest / LEVELS).clamp(min=1e-30)
            stored[name] = (value.float() / per_output(scale, value)).round().char()
            stored[name + SCALE] = scale
        else:
            stored[name] = value.half()
    if not all(bool(value.isfinite().all()) for value in stored.values() if value.is_floating_point()):
        raise UsageError("Some weights are not finite in float16. Train again with a smaller learning rate.")
    return stored


def restored(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `rounded`, except for the rounding; tensors stored as they are stay as they are."""
    scales = {name.removesuffix(SCALE): value for name, value in stored.items() if name.endswith(SCALE)}
    matrices = {name: value for name, value in stored.items() if value.dtype == torch.int8}
    fits = scales.keys() == matrices.keys() and all(
        scale.shape == matrices[name].shape[:1] and bool(scale.isfinite().all()) for name, scale in scales.items()
    )
    if not fits:
        raise UsageError(
            "Each output of each 8-bit matrix must have a finite scale, but the scales differ. Copy the model again."
        )
    return {
        name: value.float() * per_output(scales[name], value) if name in scales else value
        for name, value in stored.items()
        if not name.endswith(SCALE)
    }


def is_matrix(value: Tensor) -> bool:
    """A layer's weights, [outputs, inputs, ...], or learned positions, [features i j]; no mean or bias."""
    return value.dim() > 1 and value.shape[0] > 1 and value.numel() > 0


def per_output(scale: Tensor, value: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (value.dim() - 1))


FORMAT = "bagcert-run-1"
MOST_SIDE = 2**12  # pixels of an image
WEIGHTS, CONFIG, CHECKPOINT = "weights.safetensors", "config.json", "checkpoint.safetensors"


def scorer_table(scorer: BuiltScorer) -> dict[str, Any]:
    """What rebuilds the scorer, as JSON; its weights and data normalization are tensors."""
    size = list(scorer.footprint.image_size)
    return {"kind": kind_of(scorer.config), "image_size": size, "network": write_config(scorer.config)}


def read_scorer_table(table: object) -> tuple[NetworkConfig, tuple[int, int]]:
    """The inverse of `scorer_table`: the network, and the size of its images."""
    if not isinstance(table, Mapping) or set(table) != {"kind", "image_size", "network"}:
        raise UsageError(
            "The scorer in config.json must have kind, image_size and network, and nothing else. Copy the model again."
        )
    size = table["image_size"]
    config = read_network(table["network"])
    if table["kind"] != kind_of(config) or not isinstance(size, list) or [type(side) for side in size] != [int, int]:
        raise UsageError(
            f"The scorer in config.json must be of kind '{kind_of(config)}' for height x width pixels, "
            f"but is {table['kind']!r} for {size!r}. Copy the model again."
        )
    missing = write_config(config).keys() - table["network"].keys()
    if missing:  # a default would be another network than the one that was trained
        raise UsageError(
            f"The network in config.json must have all keys, but lacks {', '.join(sorted(missing))}. Train it again."
        )
    if not all(1 <= side <= MOST_SIDE for side in size):
        raise UsageError(
            f"The image size in config.json must be 1 to {MOST_SIDE} pixels, but is {size!r:.60}. Copy the model again."
        )
    return config, (size[0], size[1])


def outline(network: NetworkConfig, image_size: tuple[int, int]) -> BuiltScorer:
    """The network without its numbers: shapes alone, which take no memory."""
    with torch.device("meta"):
        return network.build(image_size, mean=(0.0,), std=(1.0,))


def read_card(folder: Path) -> dict[str, Any]:
    """The config.json of a finished run."""
    if not (folder / CONFIG).is_file() or not (folder / WEIGHTS).is_file():
        more = " Its training is not finished: bagcert train ... --resume" if (folder / CHECKPOINT).exists() else ""
        raise UsageError(f"{folder} holds no finished run with config.json and weights.safetensors.{more}")
    return read_json(folder / CONFIG)


def load_scorer(folder: Path, network: nn.Module | None = None) -> tuple[BuiltScorer, dict[str, Any]]:
    """A saved scorer, on the CPU, in evaluation mode, and its config.json. Incomplete files are refused.

    A network of the caller's own gets the stored weights before it is traced.
    """
    weights, config, card = folder / WEIGHTS, folder / CONFIG, read_card(folder)
    if card.get("format") != FORMAT:
        raise UsageError(
            f"The format of {config} must be {FORMAT}, but is {card.get('format')!r}. Train it with this version."
        )
    if card.get("weights_sha256") != sha256(weights.read_bytes()):
        raise UsageError(f"The weights in {weights} do not have the SHA-256 in config.json. Copy the model again.")
    built, size = read_scorer_table(card.get("scorer"))
    tensors = restored(read_tensors(weights)[0])
    if network is None:
        fitting(outline(built, size), tensors, "in config.json")
    else:
        built = built.handed(network)
        mine = f"{OWN}."
        own = {name.removeprefix(mine): value for name, value in tensors.items() if name.startswith(mine)}
        network.load_state_dict(fitting(network, own, "you hand over"))
    scorer = built.build(size, mean=(0.0,), std=(1.0,))
    scorer.load_state_dict(fitting(scorer, tensors, "in config.json"))
    return scorer.eval(), card


def fitting(module: nn.Module, tensors: Mapping[str, Tensor], which: str, file: str = WEIGHTS) -> Mapping[str, Tensor]:
    """The tensors, refused unless they have the names and shapes of the module's."""
    expected = {name: value.shape for name, value in module.state_dict().items()}
    found = {name: value.shape for name, value in tensors.items()}
    if expected != found:
        odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise UsageError(
            f"The tensors in {file} are not those of the network {which}: they differ in '{odd[0]}'. "
            "Use the network and the files that were saved together."
        )
    return tensors


def save_scorer(folder: Path, scorer: Scorer, weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write weights and card. The card comes last and holds the weights' SHA-256: without a card, no finished run."""
    if not isinstance(scorer, BuiltScorer):
        raise UsageError(f"No card can describe a {type(scorer).__name__}. Use bagcert.defend(network, image_size).")
    if (folder / CONFIG).exists():
        raise UsageError(f"{folder} holds a model already. Choose another folder.")
    content = pack_tensors(weights, {})
    write_atomically(folder / WEIGHTS, content)
    card = {"format": FORMAT, "weights_sha256": sha256(content), "scorer": scorer_table(scorer), **facts}
    write_json(folder / CONFIG, card)


def load_foreign(network: nn.Module, path: Path) -> str:
    """Give the network the weights of a file of another program, and return the file's SHA-256.

    Safetensors, or what torch.save wrote: tensors only, since anything else in it could run code.
    """
    try:
        content = path.read_bytes()
        found = load_tensors(content) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as error:
        raise UsageError(
            f"{path} holds no weights that are tensors alone ({first_line(error)}). Save network.state_dict()."
        ) from error
    for key in ("state_dict", "model"):
        found = found[key] if isinstance(found, Mapping) and isinstance(found.get(key), Mapping) else found
    if not isinstance(found, Mapping) or not all(isinstance(value, Tensor) for value in found.values()):
        raise UsageError(f"{path} holds no table of tensors. Save network.state_dict().")
    network.load_state_dict(fitting(network, found, "you name", path.name))
    return sha256(content)
