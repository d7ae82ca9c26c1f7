"""Rows of an attack: for each image the class under the best attack, and where its patch sits."""

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
from bagcert.program import at_once
from bagcert.rows.accuracy import share
from bagcert.rows.format import ALERTS, ATTACK, AttackRecord, rows_name
from bagcert.rows.header import describe_scores
from bagcert.rows.resume import append_records, finish, resume
from bagcert.rows.table import read_table

BATCH = {"cpu": 10, "cuda": 1000}  # images; an interrupted call continues at a multiple of it


@dataclass(frozen=True, eq=False)
class AttackRows:
    """What an attack came to; accuracies are shares of all images. `header` is what the file beside the rows says.

    If the rule raises alerts, an alert on the clean image is an error, proven means certified or detectable, and an
    attack that raised one has failed.
    """

    header: dict[str, Any]
    labels: Tensor  # int64 [n]
    predicted: Tensor
    certified: Tensor  # bool [n]
    attacked: Tensor  # int64 [n]: the class under the best attack
    alert: Tensor | None = None  # bool [n], of the clean image
    detectable: Tensor | None = None  # bool [n]

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def __repr__(self) -> str:
        tried = f"{self.header['patch']} {self.header['rule']}"
        return f"AttackRows({self.header['model']}, {len(self)} images, {tried})"

    @property
    def heard(self) -> Tensor:
        """The images without an alert, bool [n]."""
        return torch.ones_like(self.certified) if self.alert is None else ~self.alert

    @property
    def proven(self) -> Tensor:
        return self.certified if self.detectable is None else self.certified | self.detectable

    @property
    def clean_accuracy(self) -> float:
        return share(self.heard & (self.predicted == self.labels))

    @property
    def certified_accuracy(self) -> float:
        """No attack can bring the accuracy below this."""
        return share(self.heard & self.proven & (self.predicted == self.labels))

    @property
    def attacked_accuracy(self) -> float:
        """This attack has brought the accuracy down to this."""
        return share(self.heard & (self.attacked == self.labels))

    @property
    def flips_of_certified(self) -> Tensor:
        """The certified or detectable images that the attack succeeded on: every one is a broken proof."""
        return (self.proven & (self.attacked != self.predicted)).nonzero().flatten()


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
    size = at_once(BATCH, defense.device)
    header = attack_header(facts, defense, settings)
    done = resume(path, header, size)
    after_batch(done)
    first, last = -(-done // size), -(-header["images"] // size)
    batches = islice(source.batches(size, defense.device, start=first), last - first)
    for number, batch in enumerate(batches, start=first):
        kept = batch.index < header["images"]
        batch = Batch(batch.images[kept], batch.labels[kept], batch.index[kept])
        # Each batch draws its own random starts, so that a continued call draws those of an uninterrupted one.
        attacked = defense.attack(batch.images, batch.labels, replace(settings, seed=seed_of(settings, number)))
        save_unsound(path, batch, attacked)
        append_records(path, to_records(header["patch"], header["rule"], batch, attacked))
        after_batch(len(batch.labels))
    finish(path, summary(read_attack_rows(path, finished=False)))


def attack_header(facts: dict[str, Any], defense: Defense, settings: AttackSettings) -> dict[str, Any]:
    """What the file beside the rows says; patch and rule are those of the defense."""
    evaluation = {"patch": str(defense.threat), "rule": defense.rule.written}
    attack = {"kind": ATTACK, "attack": asdict(settings), "batch": at_once(BATCH, defense.device)}
    return {**facts, **evaluation, **describe_scores(defense.scorer), **attack}


def seed_of(settings: AttackSettings, batch: int) -> int:
    return settings.seed * 2**20 + batch


def to_records(patch: str, rule: str, batch: Batch, attacked: Attacked) -> list[AttackRecord]:
    """The records of a batch."""
    certificate = attacked.certificate
    columns = (batch.index, batch.labels, certificate.predicted, certificate.certified, attacked.attacked)
    placements = [None if placement[0] < 0 else placement for placement in attacked.placement.tolist()]
    alerts = [flags.tolist() for flags in (certificate.alert, certificate.detectable) if flags is not None]
    others = [
        () if placement is None else tuple(each)
        for placement, each in zip(placements, attacked.others.tolist(), strict=True)
    ]
    rows = zip(*(column.tolist() for column in columns), placements, *alerts, strict=True)
    records = [AttackRecord(patch, rule, *values) for values in rows]
    return [replace(record, other_placements=each) for record, each in zip(records, others, strict=True)]


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
    name = f"{rows_name(path)}-unsound-{image}"
    return path.with_name(f"{name}.png"), path.with_name(f"{name}.npy")


def read_attack_rows(path: Path, finished: bool = True) -> AttackRows:
    """Rows of an attack; a file that lacks images or is not finished is refused."""
    meta, table = read_table(path, ATTACK, finished)
    columns = (table[name][:, 0] for name in ("label", "predicted", "certified", "attacked", *ALERTS) if name in table)
    return AttackRows(meta.header, *columns)


def summary(rows: AttackRows) -> list[dict[str, Any]]:
    """The accuracies as the file beside the rows gives them."""
    return [
        {
            "patch": rows.header["patch"],
            "rule": rows.header["rule"],
            "clean_accuracy": rows.clean_accuracy,
            "certified_accuracy": rows.certified_accuracy,
            "attacked_accuracy": rows.attacked_accuracy,
            "flips_of_certified": len(rows.flips_of_certified),
        }
    ]
