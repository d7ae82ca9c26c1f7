"""A part of a split that is certified by itself, with rows of its own; `joining.py` makes one file of all parts."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError

MOST_SHARDS = 2**16


@dataclass(frozen=True)
class Shard:
    """Number `number` of `of`, from 1: the images `part` of the first `images` of a split."""

    number: int
    of: int
    part: range
    images: int

    def __str__(self) -> str:
        return f"shard {self.number} of {self.of}"

    @property
    def header(self) -> dict[str, Any]:
        """What the header says of it, besides the number of its images."""
        return {"shard": {"number": self.number, "of": self.of, "first": self.part.start, "images": self.images}}


def cut(text: str, images: int, at_once: int) -> Shard:
    """The shard that a text such as 3/8 names.

    The batches that the network sees at once are divided as evenly as possible, in their order. No batch is cut, so
    every image has the batch mates, and the scores, of a run over the whole.
    """
    found = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text.strip(), re.ASCII)
    number, of = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= of:
        raise UsageError(f"There is no shard '{text}'. Write 1/8, 2/8 and so on up to 8/8, for any number of shards.")
    batches = -(-images // at_once)
    if of > batches:
        raise UsageError(
            f"{images} images make {batches} of the batches of {at_once} that shards consist of. Use at most {batches} "
            f"shard{'s' if batches > 1 else ''}, not {of}."
        )
    first, last = (place * batches // of * at_once for place in (number - 1, number))
    return Shard(number, of, range(first, min(last, images)), images)


def shard_of(header: dict[str, Any]) -> Shard | None:
    """The shard that a header describes; None if it is of a whole. ValueError if no reader should believe it."""
    if "shard" not in header:
        return None
    table, count = header["shard"], header["images"]
    if not isinstance(table, dict):
        raise ValueError("a shard that is no object")
    number, of, first, images = (table[name] for name in ("number", "of", "first", "images"))
    if not all(type(value) is int and 0 <= value < 2**31 for value in (number, of, first, images)):
        raise ValueError("a shard that is not described by numbers")
    if not (1 <= number <= of <= MOST_SHARDS and first + count <= images):
        raise ValueError(f"shard {number} of {of} with {count} images from {first} on, of {images}")
    return Shard(number, of, range(first, first + count), images)


def numbers_of(header: dict[str, Any]) -> range:
    """The numbers, in the split, of the images that rows with this header hold."""
    shard = shard_of(header)
    return shard.part if shard else range(header["images"])


def whole_header(header: dict[str, Any]) -> dict[str, Any]:
    """What rows of the whole say, from what those of a shard do."""
    shard = shard_of(header)
    if shard is None:
        return header
    return {name: value for name, value in header.items() if name != "shard"} | {"images": shard.images}


def need_whole(path: Path, header: dict[str, Any]) -> None:
    """Refuse a shard: its accuracies are not those of the split."""
    if shard := shard_of(header):
        raise UsageError(
            f"{path} is {shard}. Make one file of all of them: bagcert rows join PART... --out WHOLE.jsonl"
        )
