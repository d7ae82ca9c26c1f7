"""Sets of the k best classes: how often the label is in them, how often that is proven, and how large they are."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.files import pack, write_atomically
from bagcert.rows.prover import one_thread
from bagcert.rules import IntegerScores, TopClasses, TwoMask
from bagcert.rules.certificate import own
from bagcert.tensors import Scores
from studies.common.subject import Subject
from studies.labels.attacked import descend
from studies.labels.tasks import bits

PATCHES = ("2x2", "5x5", "8x8", "10x10")
BEST = (2, 3, 5)  # for k = 1 see the certificates of `two-mask`
BATCH = 400


def measure_top(subject: Subject, images: int, attacked: int, steps: int, rows: Path) -> dict[str, Any]:
    """For every patch and k, from one pass over the test images; `rows` gets one line per image and patch."""
    facing = {patch: subject.defense.against(patch) for patch in PATCHES}
    columns: dict[tuple[str, int], list[Tensor]] = {(patch, best): [] for patch in PATCHES for best in BEST}
    labels = []
    for number, batch in enumerate(subject.source.batches(BATCH, subject.defense.device)):
        count = min(len(batch.labels), images - number * BATCH)
        if count <= 0:
            break
        scores, mine = subject.defense.scores(batch.images[:count]), batch.labels[:count]
        labels.append(mine.cpu())
        with one_thread():
            for (patch, best), parts in columns.items():
                found = sets(facing[patch], scores, best)
                flags = (bits(found.members), bits(found.proven), own(found.members, mine), own(found.proven, mine))
                parts.append(torch.stack([each.long() for each in (*flags, found.sizes)], dim=1).cpu())
        print(f"{number * BATCH + count} of {images} images", flush=True)
    whole = {key: torch.cat(parts) for key, parts in columns.items()}
    write_atomically(rows, pack("".join(rows_of(whole, torch.cat(labels))).encode(), rows.suffix))
    found_attacks = {patch: attack(facing[patch], subject, attacked, steps) for patch in PATCHES} if attacked else {}
    return {
        patch: {
            **{str(best): summary(whole[patch, best]) for best in BEST},
            **({"attack": found_attacks[patch]} if attacked else {}),
        }
        for patch in PATCHES
    }


def sets(defense: Defense, scores: IntegerScores, best: int) -> TopClasses:
    return TwoMask(defense.regions).certify_top(scores, best, defense.regions)


def summary(table: Tensor) -> dict[str, float]:
    """Shares of all images, and sizes; from the columns members, proven, label in, label proven, size."""
    inside, proven, sizes = table[:, 2:].double().unbind(dim=1)
    return {
        "in_set": float(inside.mean()),
        "proven": float(proven.mean()),
        "mean_size": float(sizes.mean()),
        "largest_size": int(sizes.max()),
    }


def rows_of(whole: dict[tuple[str, int], Tensor], labels: Tensor) -> list[str]:
    """One line per image and patch; sets are numbers whose bit c is class c, members and proven for each k."""
    lines = []
    for patch in PATCHES:
        table = torch.stack([whole[patch, best][:, :2] for best in BEST], dim=1).tolist()  # n k 2
        for number, (label, each) in enumerate(zip(labels.tolist(), table, strict=True)):
            found = {str(best): pair for best, pair in zip(BEST, each, strict=True)}
            lines.append(json.dumps({"image": number, "label": label, "patch": patch, "sets": found}) + "\n")
    return lines


def attack(defense: Defense, subject: Subject, count: int, steps: int, best: int = 3) -> dict[str, int]:
    """Drive the label out of the set of the first images, where its lead over the k-th rival is least."""
    tally = {"best": best, "attacked": 0, "proven": 0, "out": 0, "broken": 0}
    for number, batch in enumerate(subject.source.batches(min(BATCH, count), subject.defense.device)):
        if tally["attacked"] >= count:
            break
        scores = defense.scores(batch.images)
        before = sets(defense, scores, best)
        out = torch.zeros_like(own(before.members, batch.labels))
        goal, places = partial(mean_lead, labels=batch.labels, best=best), weakest(defense, scores, batch, best)
        for images in descend(defense, batch.images, places, goal, steps, number):
            out |= ~own(sets(defense, defense.scores(images), best).members, batch.labels)
        inside, proven = own(before.members, batch.labels), own(before.proven, batch.labels)
        tally["attacked"] += int(inside.sum())
        tally["proven"] += int(proven.sum())
        tally["out"] += int((out & inside).sum())
        tally["broken"] += int((out & proven).sum())
    return tally


def kth_lead(totals: Scores, labels: Tensor, best: int) -> Tensor:
    """The lead of each label over the rival that would push it out of the `best` ones; totals are [b k ...]."""
    index = labels.reshape(-1, *(1,) * (totals.dim() - 1)).expand(-1, 1, *totals.shape[2:])
    lowest = torch.finfo(totals.dtype).min if totals.is_floating_point() else torch.iinfo(totals.dtype).min
    rivals = totals.scatter(1, index, lowest)
    return totals.gather(1, index)[:, 0] - rivals.topk(best, dim=1).values[:, -1]


def mean_lead(soft: Scores, labels: Tensor, best: int) -> Tensor:
    return kth_lead(soft.mean(dim=(2, 3)), labels, best)


def weakest(defense: Defense, scores: IntegerScores, batch: Batch, best: int) -> Tensor:
    """The region outside which the label leads its k-th rival least, int64 [b]."""
    left = scores.values.sum(dim=(2, 3))[:, :, None] - defense.regions.sums(scores.values)
    return kth_lead(left, batch.labels, best).argmin(dim=1)
