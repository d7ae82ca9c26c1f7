"""The options that name a threat, `--patch` in one of the notations or `--masks` with a file, and a rate of alerts."""

from pathlib import Path
from typing import Annotated

import typer

from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows.thresholds import at_rate
from bagcert.threats.masks_file import read_masks

PatchOption = Annotated[
    str | None, typer.Option(metavar="PATCH", help="patch such as 5x5, 2.4% or 5x5,2x12; default: the model's")
]
MasksOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.npy", help="instead of --patch: any sets of pixels, booleans (sets, height, width)"),
]
ALERTS = "raise alerts, above a threshold that this share of clean images exceeds, such as 1%"
FalseAlertsOption = Annotated[
    str | None,
    typer.Option(metavar="RATE", help=f"{ALERTS}; it must be on the model's card, where `bagcert certify` puts it"),
]


def against(
    defense: Defense, patch: str | None, masks: Path | None, rule: str | None, false_alerts: str | None = None
) -> Defense:
    """The defense against what the options name; None keeps what there is."""
    if masks is not None and patch is not None:
        raise UsageError("A threat is named by --patch or by --masks, but both are given. Leave one out.")
    threat = patch if masks is None else read_masks(masks, defense.threat.image_size)
    facing = defense.against(threat, rule)
    return facing if false_alerts is None else at_rate(facing, false_alerts)
