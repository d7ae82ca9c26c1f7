"""Which model: a shipped one, a folder, one of the Hub; and `--network`, the caller's own, which no card may name."""

import sys
from importlib import import_module
from typing import Annotated

import typer
from torch import nn

from bagcert.errors import UsageError, first_line

ModelArgument = Annotated[
    str, typer.Argument(help="shipped model, folder written by `bagcert train`, or hf-hub:owner/name")
]
OwnNetwork = Annotated[
    str | None,
    typer.Option(
        "--network", metavar="MODULE:FUNCTION", help="for a network of your own: the function that returns it"
    ),
]


def own_network(text: str | None) -> nn.Module | None:
    """What the function returns; None if no network is named. Modules in the current folder are found."""
    if text is None:
        return None
    place, colon, name = text.partition(":")
    if not (colon and place and name):
        raise UsageError(f"The option --network takes MODULE:FUNCTION, as in my_networks:small, not '{text}'.")
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
