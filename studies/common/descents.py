"""Descents against images of one kind, and how many of their classes change: the loop of `soundness` and `alerts`."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from bagcert import Certificate, Defense
from bagcert.attacks import AttackSettings
from bagcert.data import Source

BATCH = 64  # images searched for fitting ones at a time


@dataclass(frozen=True)
class Count:
    """What came of the attacks; `changed` has the numbers of the images whose answer an attack changed."""

    images: int
    of: int  # images that were looked at
    runs: int
    changed: list[int]
    seconds: float

    def to_dict(self, changed: str) -> dict[str, Any]:
        """As results are stored, with that word for what changed."""
        facts = {"images": self.images, "of": self.of, "runs": self.runs}
        return {**facts, changed: self.changed, "seconds": self.seconds}


def attack_until(
    defense: Defense,
    source: Source,
    chosen: Callable[[Certificate], Tensor],
    settings: AttackSettings,
    runs: int,
    most: int | None = None,
) -> Count:
    """Attack the chosen images until `runs` descents are done, `most` images attacked or none left."""
    begun, done, images, changed, seen = time.perf_counter(), 0, 0, list[int](), 0
    most, each = len(source) if most is None else most, settings.places * settings.restarts
    for number, batch in enumerate(source.batches(BATCH, "cpu")):
        certificate = defense.certify(batch.images, exact=False)
        wanted = min(-(-(runs - done) // each), most - images)
        picked = chosen(certificate).cpu().nonzero().flatten()[:wanted]
        seen += len(batch.images)
        if len(picked):
            predicted = certificate.predicted.cpu()[picked]
            result = defense.attack(batch.images[picked], predicted, replace(settings, seed=settings.seed + number))
            done, images = done + result.runs, images + len(picked)
            changed += batch.index[picked][result.attacked.cpu() != predicted].tolist()
        if done >= runs or images >= most:
            break
    return Count(images, seen, done, changed, round(time.perf_counter() - begun, 1))
