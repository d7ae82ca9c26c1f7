"""The integer scores beside the rows: from them anyone can check every certificate, and the report draws its maps.

`NAME.jsonl` has its scores in `NAME.scores/`, one safetensors file per batch, named by its first image. 0/1 votes
are packed eight to a byte (CIFAR-10, all test images: 13 MB); fixed-point scores are int16 if they fit, else int32.
"""

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from bagcert.errors import UsageError
from bagcert.files import write_atomically
from bagcert.rows.format import rows_name

Integers = NDArray[np.int32]  # [b k i j]


def scores_folder(rows: Path) -> Path:
    """Where the scores of a rows file lie."""
    return rows.with_name(rows_name(rows) + ".scores")


def digest(scores: NDArray[Any]) -> str:
    """16 hex digits that tie a row to the scores [k i j] of its image, whatever they are stored as."""
    return hashlib.sha256(scores.astype("<i4").tobytes()).hexdigest()[:16]


def store_scores(folder: Path, first: int, scores: Integers) -> None:
    """Write the scores of one batch; a crash leaves the whole file or none."""
    if scores.min() >= 0 and scores.max() <= 1:
        packed = {"votes": np.packbits(scores.astype(np.uint8).reshape(len(scores), -1), axis=1)}
    else:
        small = np.abs(scores).max() < 2**15
        # safetensors writes an array as it lies in memory, and scores of a network lie with classes last.
        packed = {"scores": np.ascontiguousarray(scores, np.int16 if small else np.int32)}
    write_atomically(folder / f"{first:08}.safetensors", safetensors.numpy.save(packed))


def read_chunk(path: Path, shape: tuple[int, int, int]) -> Integers:
    """The scores of one batch, [b k i j]."""
    try:
        packed = safetensors.numpy.load_file(path)
        if "votes" in packed:
            cells = math.prod(shape)
            if packed["votes"].shape[1:] != (-(-cells // 8),) or packed["votes"].dtype != np.uint8:
                raise ValueError(f"votes that are not {shape}")
            return np.unpackbits(packed["votes"], axis=1, count=cells).reshape(-1, *shape).astype(np.int32)
        if packed["scores"].dtype not in (np.int16, np.int32):
            raise ValueError(f"scores that are {packed['scores'].dtype}")
        return packed["scores"].reshape(-1, *shape).astype(np.int32)
    except (OSError, KeyError, ValueError, safetensors.SafetensorError) as error:
        raise UsageError(
            f"{path} does not hold the scores of a batch ({error}). Make it again with bagcert certify."
        ) from error


class ScoreFiles:
    """Scores by image number."""

    def __init__(self, rows: Path, header: dict[str, Any]) -> None:
        self.folder = scores_folder(rows)
        self.shape = (len(header["classes"]), *header["footprint"]["grid"])
        self._starts = sorted(int(path.stem) for path in self.folder.glob("*.safetensors") if path.stem.isdigit())
        self._held: tuple[int, Integers] | None = None

    def image(self, number: int) -> Integers | None:
        """The scores [k i j] of one image; None if no file has it. One file is held at a time."""
        start = max((start for start in self._starts if start <= number), default=None)
        if start is None:
            return None
        if self._held is None or self._held[0] != start:
            self._held = (start, read_chunk(self.folder / f"{start:08}.safetensors", self.shape))
        place = number - start
        return self._held[1][place] if place < len(self._held[1]) else None
