"""Rows of an attack: one JSON line per image, written as they come.

line 1      {...}: what was attacked with what; "kind" is "attack"
each image  [number, label, predicted, certified, class under the best attack, placement or null]
            a placement is [row, column, height, width] in pixels, null where no attack changed the class
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from bagcert.attacks import Attacked, AttackSettings
from bagcert.data import Batch, Source
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.files import append, write_atomically
from bagcert.program import at_once
from bagcert.rows.format import read_texts
from bagcert.rows.header import describe_scores
from bagcert.rows.write import need_same

BATCH = {"cpu": 10, "cuda": 1000}  # images; an interrupted call continues at a multiple of it


@dataclass(frozen=True, eq=False)
class AttackRows:
    """What an attack came to; accuracies are shares of all images."""

    header: dict[str, Any]
    labels: Tensor  # int64 [n]
    predicted: Tensor
    certified: Tensor  # bool [n]
    attacked: Tensor  # int64 [n]: the class under the best attack

    @property
    def clean_accuracy(self) -> float:
        return share(self.predicted == self.labels)

    @property
    def certified_accuracy(self) -> float:
        """No attack can bring the accuracy below this."""
        return share(self.certified & (self.predicted == self.labels))

    @property
    def attacked_accuracy(self) -> float:
        """This attack has brought the accuracy down to this."""
        return share(self.attacked == self.labels)

    @property
    def flips_of_certified(self) -> Tensor:
        """The certified images whose class changed: every one is a broken proof."""
        return (self.certified & (self.attacked != self.predicted)).nonzero().flatten()


def share(flags: Tensor) -> float:
    return float(flags.double().mean())


def write_attack_rows(
    path: Path,
    defense: Defense,
    source: Source,
    facts: dict[str, Any],
    settings: AttackSettings,
    after_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Attack the first `facts["images"]` images of a split; what an interrupted call wrote is kept and continued.

    A certified image that changes its class is saved beside the rows, before its row is written.
    """
    device = next(defense.scorer.parameters()).device
    size = at_once(BATCH, device)
    header = {**facts, **describe_scores(defense.scorer), "kind": "attack", "attack": asdict(settings), "batch": size}
    done = resume(path, header)
    after_batch(done)
    first, last = -(-done // size), -(-header["images"] // size)
    for number, batch in enumerate(islice(source.batches(size, device, start=first), last - first), start=first):
        kept = batch.index < header["images"]
        batch = Batch(batch.images[kept], batch.labels[kept], batch.index[kept])
        # Each batch draws its own random starts, so that a continued call draws those of an uninterrupted one.
        attacked = defense.attack(batch.images, batch.labels, replace(settings, seed=seed_of(settings, number)))
        save_unsound(path, batch, attacked)
        append(path, [json.dumps(row, separators=(",", ":")) + "\n" for row in to_lines(batch, attacked)])
        after_batch(len(batch.labels))


def seed_of(settings: AttackSettings, batch: int) -> int:
    return settings.seed * 2**20 + batch


def to_lines(batch: Batch, attacked: Attacked) -> list[list[Any]]:
    """The rows of a batch."""
    certificate = attacked.certificate
    columns = (
        batch.index,
        batch.labels,
        certificate.predicted,
        certificate.certified.long(),
        attacked.attacked,
    )
    places = [None if place[0] < 0 else place for place in attacked.placement.tolist()]
    return [list(row) for row in zip(*(column.tolist() for column in columns), places, strict=True)]


def save_unsound(path: Path, batch: Batch, attacked: Attacked) -> None:
    """Keep each attacked image that breaks a certificate: PNG to look at, .npy [c h w] with the exact pixels."""
    for place in attacked.unsound.nonzero().flatten().tolist():
        pixels = attacked.images[place].cpu().numpy()
        png, exact = unsound_paths(path, int(batch.index[place]))
        np.save(exact, pixels)
        levels = (pixels * 255).round().astype(np.uint8)
        Image.fromarray(levels[0] if len(levels) == 1 else levels.transpose(1, 2, 0)).save(png)


def unsound_paths(path: Path, image: int) -> tuple[Path, Path]:
    """Where the picture and the exact pixels of a broken certificate are kept."""
    return path.with_name(f"{path.stem}-unsound-{image}.png"), path.with_name(f"{path.stem}-unsound-{image}.npy")


def resume(path: Path, header: dict[str, Any]) -> int:
    """How many images the file holds already, in whole batches; starts a new file where there is none."""
    if not path.exists():
        write_atomically(path, (json.dumps(header) + "\n").encode())
        return 0
    found, rows = read_attack_lines(path)
    need_same(path, found, header)
    kept = len(rows) if len(rows) == header["images"] else len(rows) // header["batch"] * header["batch"]
    lines = [json.dumps(header), *(json.dumps(row, separators=(",", ":")) for row in rows[:kept])]
    write_atomically(path, "".join(line + "\n" for line in lines).encode())
    return kept


def read_attack_rows(path: Path) -> AttackRows:
    """Rows of an attack from a file; one that does not hold every image is refused."""
    header, rows = read_attack_lines(path)
    if len(rows) != header["images"]:
        raise UsageError(
            f"expected {header['images']} rows in {path}, got {len(rows)}; go on to the end: the same command continues"
        )
    try:
        table = torch.tensor([row[1:5] for row in rows], dtype=torch.int64).reshape(-1, 4)
    except (ValueError, RuntimeError) as error:
        raise UsageError(f"expected classes as numbers in {path}, got: {error}; make it by bagcert attack") from error
    labels, predicted, certified, attacked = table.unbind(dim=1)
    return AttackRows(header, labels, predicted, certified == 1, attacked)


def read_attack_lines(path: Path) -> tuple[dict[str, Any], list[list[Any]]]:
    """The first line and the rows; a last line that a crash cut off is left out."""
    try:
        texts = [text for text in read_texts(path) if text.endswith("\n")]
        header, *rows = (json.loads(text) for text in texts)
        fits = header["kind"] == "attack" and type(header["images"]) is int and header["images"] > 0
    except (OSError, EOFError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"expected rows of an attack in {path}, got something else: {error}; make it by bagcert attack"
        ) from error
    for number, row in enumerate(rows):
        fits = fits and isinstance(row, list) and len(row) == 6 and row[0] == number
        fits = fits and all(isinstance(value, int) for value in row[:5])
    if not fits:
        raise UsageError(f"expected rows of an attack in {path}, got something else; give a file of `bagcert attack`")
    return header, rows
