"""Recovery and detection of a model at several rates of false alerts, from one set of scores."""

from collections.abc import Iterator, Sequence
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
TWO = ("2*2x2", "2*5x5")  # patches at once
THREATS = (*PATCHES, *TWO)
STORED = 960  # images after which results are stored
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


def measure(
    defense: Defense, source: Source, images: int, threats: Sequence[str], stored: Path | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """For every threat: recovery by `two-mask`, detection at a threshold of 0 and at each rate, and the curve.

    After every STORED images, and after the last, how many they are and what they say. Recovery from two patches at
    once takes far longer than all this, so it is not among it.
    """
    facing = {patch: (defense.against(patch, "detect"), defense.against(patch, "two-mask")) for patch in threats}
    parts: dict[str, list[Tensor]] = {patch: [] for patch in threats}
    seen = told = 0
    for scores, labels in batches(defense, source, images, stored):
        with one_thread():
            for patch, (detect, pairs) in facing.items():
                plain = detect.rule.predict(scores, detect.regions)
                columns = [alert_leads(detect, scores), plain == labels]
                if patch in PATCHES:
                    found = pairs.certify_integers(scores, exact=False)
                    columns += [found.predicted == labels, found.certified, alert_leads(pairs, scores)]
                parts[patch].append(torch.stack([column.long() for column in columns], dim=1).cpu())
        seen += len(labels)
        if seen - told >= STORED or seen >= images:
            told = seen
            yield seen, {patch: summary(torch.cat(found)) for patch, found in parts.items()}


def summary(table: Tensor) -> dict[str, Any]:
    """From leads outside masks and right by sums, [n 2]; of one patch also right by two masks, certified, leads."""
    leads, right = table[:, 0], table[:, 1].bool()
    found = {
        "t=0": detection(leads, right, torch.zeros_like(leads)),
        **{rate: {**crossed(leads, right, rate), "card": threshold_for(leads, read_rate(rate))} for rate in RATES},
        "curve": {rate: crossed(leads, right, rate) for rate in CURVE},
    }
    if table.shape[1] == 2:
        return found
    recovered, certified, beside = table[:, 2].bool(), table[:, 3].bool(), table[:, 4]
    recovery = {"clean": share(recovered), "certified": share(recovered & certified)}
    return {
        "recovery": recovery,
        **found,
        "two-mask": {rate: threshold_for(beside, read_rate(rate)) for rate in RATES},
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
