"""What a patch that rows name may paint, pixel by pixel: read by code of its own."""

import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.typing import NDArray

from bagcert.errors import UsageError
from bagcert.rows.verify.room import SET, Room

Flags = NDArray[np.bool_]
Masks = Mapping[str, Flags]  # bool [n h w], by the text that names them in rows


@dataclass(frozen=True, eq=False)
class Painted:
    """One placement: some of the pixels in these rows and columns, or all of them."""

    rows: frozenset[int]
    columns: frozenset[int]
    pixels: Flags | None = None  # [h w]; None: every row with every column

    @property
    def size(self) -> int:
        """The memory that it takes, in numbers; eight pixels take that of one, or less."""
        return 2 * SET + len(self.rows) + len(self.columns) + (0 if self.pixels is None else self.pixels.size // 8)

    def lies_in(self, area: str, height: int, width: int) -> bool:
        """Does no pixel lie wholly outside that part of the image?

        Row r takes up the share r / height to (r + 1) / height of the image, and is outside the lower half if it ends
        where that begins.
        """
        upper = all(2 * row < height for row in self.rows)
        lower = all(2 * (row + 1) > height for row in self.rows)
        left = all(2 * column < width for column in self.columns)
        right = all(2 * (column + 1) > width for column in self.columns)
        center = all(4 * (row + 1) > height and 4 * row < 3 * height for row in self.rows) and all(
            4 * (column + 1) > width and 4 * column < 3 * width for column in self.columns
        )
        return {"upper": upper, "lower": lower, "left": left, "right": right, "center": center}[area]


def patches_at_once(patch: str) -> tuple[int, str]:
    """How many patches are painted at once, and what each may be: `2*5x5` or `2of5x5`."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:\*|of)(.*)", patch)
    count, one = (int(match[1]), match[2]) if match else (1, patch)
    if count < 1:
        raise UsageError(f"The rows are about no patch at all, '{patch}'. Certify again.")
    return count, one


def placements(patch: str, height: int, width: int, masks: Masks) -> list[Painted]:
    """Every placement of one patch: of parts joined by ',' or '|' each in turn, refused unless each fits somewhere."""
    found, room = list[Painted](), Room()
    for part in re.split(r"[,|](?![^(]*\))", patches_at_once(patch)[1].replace(" ", "")):
        shape, at, area = part.partition("@")
        if at and area not in ("upper", "lower", "left", "right", "center"):
            raise UsageError(f"Cannot read the area '{area}' of the patch '{patch}' in the rows. Certify again.")
        before = len(found)
        for each in anywhere(shape, height, width, masks):
            if not shape.startswith("masks:") and not (each.rows and each.columns):
                raise UsageError(f"The patch '{patch}' in the rows has no pixels. Certify again.")
            if not at or each.lies_in(area, height, width):
                room.take(each.size)
                found.append(each)
        if len(found) == before:
            raise UsageError(
                f"The patch '{part}' in the rows fits nowhere into {height}x{width} pixels. Certify again."
            )
    return found


def anywhere(part: str, height: int, width: int, masks: Masks) -> Iterator[Painted]:
    """The placements of one shape, row by row."""
    if part.startswith("masks:"):
        yield from given(part, height, width, masks)
    elif match := re.fullmatch(r"disk:(\d+)", part):
        side = int(match[1])
        if side > min(height, width):
            return
        # In half pixels, pixel y has its middle at 2 y + 1 and the disk at side; its radius is side, too.
        across = 2 * np.arange(side) + 1 - side
        disk = across[:, None] ** 2 + across**2 <= side**2
        for top in range(height - side + 1):
            for left in range(width - side + 1):
                pixels = np.zeros((height, width), dtype=bool)
                pixels[top : top + side, left : left + side] = disk
                yield set_of(pixels)
    else:
        for tall, wide in rectangles(part, height, width):
            for top in range(height - tall + 1):
                for left in range(width - wide + 1):
                    yield Painted(frozenset(range(top, top + tall)), frozenset(range(left, left + wide)))


def rectangles(part: str, height: int, width: int) -> list[tuple[int, int]]:
    """The rectangles that one shape stands for: `5x5`, `5`, `(5,5)`, `2.4%`, `area:24`."""
    if match := re.fullmatch(r"\(?(\d+)[xX×,](\d+)\)?", part):
        return [(int(match[1]), int(match[2]))]
    if part.isdecimal():
        return [(int(part), int(part))]
    if match := re.fullmatch(r"(\d*\.?\d+)%", part):
        pixels = math.ceil(Fraction(match[1]) * height * width / 100)
        side = math.isqrt(max(pixels - 1, 0)) + 1
        return [(side, side)]
    if match := re.fullmatch(r"area:(\d+)", part):
        area = int(match[1])
        return [(h, area // h) for h in range(1, height + 1) if area % h == 0 and area // h <= width]
    raise UsageError(f"Cannot read the patch '{part}' in the rows. Only rectangles, disks and masks can be verified.")


def given(part: str, height: int, width: int, masks: Masks) -> Iterator[Painted]:
    """The sets of pixels in a file."""
    if part not in masks:
        raise UsageError(f"The rows name their masks as '{part}', but no such file is given. Pass it by --masks.")
    if masks[part].shape[1:] != (height, width):
        raise UsageError(f"The masks '{part}' are not for images of {height}x{width}. Certify again.")
    yield from map(set_of, masks[part])


def set_of(pixels: Flags) -> Painted:
    rows, columns = (np.flatnonzero(pixels.any(axis=axis)).tolist() for axis in (1, 0))
    return Painted(frozenset(rows), frozenset(columns), pixels)


def read_mask_files(paths: list[Path]) -> Masks:
    """Masks by the text that names them in rows: their number, size and pixels, digested."""
    found = {}
    for path in paths:
        try:
            masks = np.load(path, allow_pickle=False)
            flags = masks.reshape(-1, *masks.shape[-2:]).astype(bool)
        except (OSError, ValueError, EOFError, SyntaxError, TokenError, MemoryError) as error:
            why = str(error) if isinstance(error, OSError) else "it must be a .npy file of booleans"
            raise UsageError(f"{path} holds no masks ({why}). Pass the file that was certified.") from error
        digest = hashlib.sha256("x".join(map(str, flags.shape)).encode())
        digest.update(flags.tobytes())
        found[f"masks:{digest.hexdigest()[:16]}"] = flags
    return found
