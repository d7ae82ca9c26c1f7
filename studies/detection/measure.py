"""Recovery and detection of a model at several rates of false alerts, from one set of scores."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Source
from bagcert.defense import Defense
from bagcert.rows.prover import one_thread
from bagcert.rows.stored_scores import read_chunk
from bagcert.rows.thresholds import BATCH, alert_leads, read_rate, threshold_for
from bagcert.rules import IntegerScores, read_scores

PATCHES = ("2x2", "5x5", "8x8", "10x10")
RATES = ("1%", "5%")
CURVE = ("0%", "0.2%", "0.5%", "1%", "2%", "3%", "5%", "7%", "10%", "15%")


def batches(
    defense: Defense, source: Source, images: int, stored: Path | None
) -> Iterator[tuple[IntegerScores, Tensor]]:
    """Scores and labels; stored scores are those of `bagcert certify --scores`, in batches of the same size."""
    shape = (len(defense.classes), *defense.scorer.footprint.grid)
    for number, batch in enumerate(source.batches(BATCH, defense.device)):
        count = min(len(batch.labels), images - number * BATCH)
        if count <= 0:
            return
        if stored is None:
            scores = defense.scores(batch.images[:count])
        else:
            values = torch.from_numpy(read_chunk(stored / f"{number * BATCH:08}.safetensors", shape)[:count])
            scores = read_scores(values, defense.scorer.step.bounds)
        yield scores, batch.labels[:count]


def measure(defense: Defense, source: Source, images: int, stored: Path | None = None) -> dict[str, Any]:
    """For every patch: recovery by `two-mask`, detection at a threshold of 0 and at each rate, and the curve."""
    facing = {patch: (defense.against(patch, "detect"), defense.against(patch, "two-mask")) for patch in PATCHES}
    parts: dict[str, list[Tensor]] = {patch: [] for patch in PATCHES}
    for scores, labels in batches(defense, source, images, stored):
        with one_thread():
            for patch, (detect, pairs) in facing.items():
                plain = detect.rule.predict(scores, detect.regions)
                found = pairs.certify_integers(scores, exact=False)
                columns = (alert_leads(detect, scores), plain == labels, found.predicted == labels, found.certified)
                beside = alert_leads(pairs, scores)
                parts[patch].append(torch.stack([column.long() for column in (*columns, beside)], dim=1))
    return {patch: summary(torch.cat(found)) for patch, found in parts.items()}


def summary(table: Tensor) -> dict[str, Any]:
    """From leads outside masks, right by sums, right by two masks, certified, and leads of `two-mask`: [n 5]."""
    leads, right, recovered, certified = table[:, 0], table[:, 1].bool(), table[:, 2].bool(), table[:, 3].bool()
    beside = table[:, 4]
    return {
        "recovery": {"clean": share(recovered), "certified": share(recovered & certified)},
        "t=0": detection(leads, right, torch.zeros_like(leads)),
        **{rate: {**crossed(leads, right, rate), "card": threshold_for(leads, read_rate(rate))} for rate in RATES},
        "two-mask": {rate: threshold_for(beside, read_rate(rate)) for rate in RATES},
        "curve": {rate: crossed(leads, right, rate) for rate in CURVE},
    }


def crossed(leads: Tensor, right: Tensor, rate: str) -> dict[str, Any]:
    """Detection with the threshold of each half of the images (odd, even) chosen on the other half."""
    wanted, above = read_rate(rate), torch.empty_like(leads)
    for half in (0, 1):
        above[half::2] = threshold_for(leads[1 - half :: 2], wanted)
    return {"thresholds": above[:2].tolist(), **detection(leads, right, above)}


def detection(leads: Tensor, right: Tensor, above: Tensor) -> dict[str, Any]:
    """Shares of all images: alerts, right without an alert, right and detectable."""
    alert = leads < -above
    return {"alerted": share(alert), "clean": share(right & ~alert), "certified": share(right & (leads > above))}


def share(flags: Tensor) -> float:
    return float(Fraction(int(flags.sum()), len(flags)))
