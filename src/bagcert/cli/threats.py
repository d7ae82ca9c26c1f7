"""The options that name a threat: `--patch` in one of the notations, or `--masks` with a file of pixel sets."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.threats.masks_file import read_masks

PatchOption = Annotated[
    str | None, typer.Option(metavar="PATCH", help="patch such as 5x5, 2.4% or 5x5,2x12; default: the model's")
]
MasksOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npy", help="instead of --patch: any pixel sets, booleans [sets, height, width]"),
]


def against(defense: Defense, patch: str | None, masks: Path | None, rule: str | None) -> Defense:
    """The defense against what the options name; None keeps what there is."""
    if masks is None:
        return defense.against(patch, rule)
    if patch is not None:
        raise UsageError("A threat is named by --patch or by --masks, but both are given. Leave one out.")
    return defense.against(read_masks(masks, defense.threat.image_size), rule)
