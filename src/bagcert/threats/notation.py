"""Threats as people write them, from text, numbers or masks; docs/threats.md is the cookbook."""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import ceil, isqrt
from numbers import Integral
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from bagcert.errors import UsageError, unknown_name
from bagcert.threats.threat import AREAS, RectangleThreat, RegionThreat, SeveralThreat, Size, Threat, inside_area

Patch = str | int | Sequence[int] | Threat | Tensor | np.ndarray
MOST_CELLS = 2**27  # pixels of all sets of a threat that is no rectangle


def parse_threat(patch: Patch, image_size: Size) -> Threat:
    """Read a threat: text in one of the NOTATIONS, a side, (height, width), boolean masks, or a threat itself."""
    if isinstance(patch, np.ndarray):
        patch = torch.from_numpy(np.array(patch))
    if isinstance(patch, Integral) and not isinstance(patch, bool):
        patch = str(patch)
    if isinstance(patch, tuple | list) and len(patch) == 2 and all(isinstance(side, Integral) for side in patch):
        patch = f"{patch[0]}x{patch[1]}"
    threat = RegionThreat(patch) if isinstance(patch, Tensor) else patch
    if isinstance(threat, str):
        return read_text(threat, image_size)
    if not isinstance(threat, Threat):
        raise UsageError(
            f"A patch must be text like 5x5, a threat or sets of pixels, but is {patch}. Write height x width."
        )
    if threat.image_size != image_size:
        raise UsageError(
            f"The threat is for images of {threat.image_size[0]}x{threat.image_size[1]}, but these have "
            f"{image_size[0]}x{image_size[1]}. Build it for this image size."
        )
    return threat


def read_text(text: str, image_size: Size) -> Threat:
    """The threat that a text stands for; `2*5x5` and `2of5x5` are two patches at once."""
    if match := re.fullmatch(r"\s*(\d{1,9})\s*(?:\*|of)\s*(.+)", text):
        one = read_choice(match[2], image_size)
        return one if match[1] == "1" else SeveralThreat(one, int(match[1]))
    return read_choice(text, image_size)


def read_choice(text: str, image_size: Size) -> Threat:
    """One patch; of `5x5,2x12` or `5x5|2x12` the attacker chooses one."""
    if "+" in text:
        raise UsageError(
            f"Patches of which the attacker chooses one are joined by ',', not '+'. "
            f"Write '{shortened(','.join(part.strip() for part in text.split('+')))}'."
        )
    parts = [part.strip() for part in re.split(r"[,|](?![^()]*\))", text)]  # not inside parentheses
    if len(parts) == 1:
        return read_part(parts[0], image_size)
    if any(part.isdigit() for part in parts):
        numbers = [part for part in parts if part.isdigit()]
        raise UsageError(
            f"A single number cannot be joined to others, as in '{shortened(text)}'. Write height x width, like "
            f"{numbers[0]}x{numbers[-1]}, or squares, like {numbers[0]}x{numbers[0]}."
        )
    threats: list[Threat] = []
    for part in parts:
        threats.append(read_part(part, image_size))
        if any(threat.masks is not None for threat in threats):
            need_room(sum(threat.number for threat in threats), image_size, text)
    return joined(threats, text.strip())


def joined(threats: Sequence[Threat], text: str) -> Threat:
    """One of these threats; the attacker chooses which."""
    rectangles = [threat for threat in threats if isinstance(threat, RectangleThreat)]
    if len(rectangles) == len(threats):
        choices = tuple(dict.fromkeys(choice for threat in rectangles for choice in threat.choices))
        return RectangleThreat(threats[0].image_size, *zip(*choices, strict=True))
    return RegionThreat(torch.cat([threat.pixels() for threat in threats]), written=text)


def read_part(text: str, image_size: Size) -> Threat:
    """One patch, perhaps with the area that it lies in: `5x5@lower`."""
    shape, at, area = (part.strip() for part in text.partition("@"))
    if area not in AREAS and at:
        raise unknown_name("area of the image", area, AREAS)
    for notation in NOTATIONS.values():
        if match := re.fullmatch(notation.pattern, shape):
            threat = notation.read(match, image_size)
            return within(threat, area, text) if area else threat
    if shape.startswith("masks:"):
        raise UsageError(f"The masks of '{shortened(text)}' are in a file. Name it by --masks FILE.npy.")
    raise UsageError(
        f"Cannot read the patch '{shortened(text)}'. Write it like {', '.join(NOTATIONS)}, 5x5,2x12 or 2*5x5 "
        "(height x width)."
    )


def within(threat: Threat, area: str, text: str) -> Threat:
    """The threat as far as it lies wholly inside the area; of several rectangles, those that fit."""
    rows, columns = inside_area(area, threat.image_size)
    if threat.masks is None:
        shapes = [each.shape for each in threat.rectangles]
        fitting = [shape for shape in shapes if shape[0] <= len(rows) and shape[1] <= len(columns)] or shapes[:1]
        return RectangleThreat(threat.image_size, tuple(fitting), (area,) * len(fitting))
    beyond = threat.masks.clone()
    beyond[:, rows.start : rows.stop, columns.start : columns.stop] = False
    kept = threat.masks[~beyond.flatten(1).any(dim=1)]
    if not len(kept):
        raise UsageError(f"No patch of '{shortened(text)}' lies inside the {AREAS[area].words}. Choose a smaller one.")
    return RegionThreat(kept, written=text)


def need_room(sets: int, image_size: Size, text: str) -> None:
    """Refuse sets of pixels that would not fit into memory."""
    if sets * image_size[0] * image_size[1] > MOST_CELLS:
        raise UsageError(
            f"The patch '{shortened(text)}' has {sets} places in images of {image_size[0]}x{image_size[1]}, too many "
            "for a shape that is no rectangle. Use the rectangle around it: a proof for that holds for all inside."
        )


def shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:37]}..."


def read_rectangle(text: re.Match[str], image_size: Size) -> Threat:
    """`5x5` or `(5, 5)`: height and width in pixels."""
    return RectangleThreat(image_size, ((int(text[1]), int(text[2])),))


def read_side(text: re.Match[str], image_size: Size) -> Threat:
    """`5`: a square of that side."""
    return RectangleThreat(image_size, ((int(text[1]), int(text[1])),))


def read_share(text: re.Match[str], image_size: Size) -> Threat:
    """`2.4%`: the smallest square of at least that share of the image (of 32x32: 5x5)."""
    target = Fraction(text[1]) / 100 * image_size[0] * image_size[1]
    if not target:
        raise UsageError(f"A patch of {text[0]} has no pixels. Write a share above 0%, like 2.4%.")
    side = isqrt(ceil(target) - 1) + 1  # the smallest side whose square is at least that
    return RectangleThreat(image_size, ((side, side),))


def read_area(text: re.Match[str], image_size: Size) -> Threat:
    """`area:24`: every rectangle of 24 pixels that fits."""
    (height, width), area = image_size, int(text[1])
    shapes = [(h, area // h) for h in range(1, height + 1) if area % h == 0 and area // h <= width] if area else []
    if not shapes:
        raise UsageError(f"No rectangle inside {height}x{width} has an area of {area}. Choose another area.")
    return RectangleThreat(image_size, tuple(shapes))


def read_disk(text: re.Match[str], image_size: Size) -> Threat:
    """`disk:5`: the pixels of a 5x5 square whose middle is at most half of 5 pixels away from the square's."""
    side = int(text[1])
    around = RectangleThreat(image_size, ((side, side),))
    need_room(around.number, image_size, text[0])
    twice = 2 * torch.arange(side) - (side - 1)  # from the square's middle, in half pixels
    disk = twice[:, None] ** 2 + twice**2 <= side**2
    masks = torch.zeros(around.number, *image_size, dtype=torch.bool)
    for mask, (row, column, height, width) in zip(masks, around.placements(), strict=True):
        mask[row : row + height, column : column + width] = disk
    return RegionThreat(masks, written=text[0])


class Notation(NamedTuple):
    """How a patch shape is written, and the threat it stands for."""

    pattern: str
    read: Callable[[re.Match[str], Size], Threat]


# By an example, as errors show it.
NOTATIONS = {
    "5x5": Notation(r"(\d{1,9})\s*[xX×]\s*(\d{1,9})", read_rectangle),
    "5": Notation(r"(\d{1,9})", read_side),
    "(5, 5)": Notation(r"\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)", read_rectangle),
    "2.4%": Notation(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*%", read_share),
    "area:24": Notation(r"area:\s*(\d{1,9})", read_area),
    "disk:5": Notation(r"disk:\s*(\d{1,9})", read_disk),
}
