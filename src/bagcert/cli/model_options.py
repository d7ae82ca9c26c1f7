"""The options that name a model (shipped, in a folder, on the Hub), a network of one's own, and the program to run it.

`--network` is an option because no card may name code to run.
"""

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from torch import nn

from bagcert.errors import UsageError, first_line
from bagcert.pictures import Framing
from bagcert.program import PROGRAMS

ModelArgument = Annotated[str, typer.Argument(help="shipped model, folder of a model or a run, or hf-hub:owner/name")]
OwnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="MODULE:FUNCTION",
        help="for a network of your own: the function that returns it, or timm:NAME",
    ),
]
ProgramOption = Annotated[
    str, typer.Option("--program", help=f"how scores are computed: {' or '.join(PROGRAMS)}; each has its own proofs")
]


def own_network(text: str | None, pretrained: bool = False) -> nn.Module | None:
    """What the function returns; None if no network is named. Modules in the current folder are found.

    A network of timm comes with its trained weights only if `pretrained`: a saved model has its own.
    """
    if text is None:
        return None
    place, colon, name = text.partition(":")
    if not (colon and place and name):
        raise UsageError(f"A network is named by MODULE:FUNCTION, as in my_networks:small, or timm:NAME, not '{text}'.")
    if place == "timm":
        return timm_network(name, pretrained)
    sys.path.insert(0, "")
    try:
        found = getattr(import_module(place), name)
    except Exception as error:
        raise UsageError(
            f"Cannot import '{name}' from {place} ({first_line(error)}). Run the command in the folder of the module."
        ) from error
    finally:
        sys.path.remove("")
    try:
        network = found if isinstance(found, nn.Module) else found()
    except Exception as error:
        raise UsageError(f"{text} must return a network without arguments, but fails ({first_line(error)}).") from error
    if not isinstance(network, nn.Module):
        raise UsageError(f"{text} must return a torch.nn.Module, but returns {type(network).__name__}.")
    return network


def timm_network(name: str, pretrained: bool) -> nn.Module:
    """A network of timm, which downloads its weights itself."""
    try:
        network: nn.Module = import_module("timm").create_model(name, pretrained=pretrained)
    except Exception as error:  # it may be missing, or fail where torchvision is
        raise UsageError(
            f"timm cannot make '{name}' ({first_line(error)}). Install timm, check the name, or give --weights."
        ) from error
    return network


def timm_settings(network: nn.Module) -> dict[str, Any]:
    """Size, normalization and framing of a network of timm, as far as it says them."""
    told = getattr(network, "pretrained_cfg", None) or {}
    if "input_size" not in told:
        return {}
    channels, height, width = told["input_size"]
    resize = max(min(height, width), round(min(height, width) / (told.get("crop_pct") or 1)))
    framing = Framing((height, width), resize, channels, interpolation="bilinear")
    return {"size": (height, width), "mean": told["mean"], "std": told["std"], "framing": framing}
