"""Sets of the k best classes: how often the label is in them, how often that is proven, and how large they are."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.files import append, pack, write_atomically
from bagcert.rows.prover import one_thread
from bagcert.rules import IntegerScores, TopClasses, TwoMask
from bagcert.rules.certificate import own
from bagcert.tensors import Scores
from studies.common.subject import Subject
from studies.labels.attacked import descend
from studies.labels.tasks import bits

PATCHES = ("2x2", "5x5", "8x8", "10x10")
BEST = (2, 3, 5)  # for k = 1 see the certificates of `two-mask`
ATTACKED = 3  # the k whose sets are attacked
BATCH = 200  # images that an interrupted call loses at most


def measure_top(subject: Subject, patches: Sequence[str], images: int, part: Path, rows: Path) -> dict[str, Any]:
    """For every patch and k, from one pass over the test images; `rows` gets one line per image and patch.

    What is done is kept in `part`, batch after batch; an interrupted call continues there.
    """
    facing = {patch: subject.defense.against(patch) for patch in patches}
    lines = part.read_text(encoding="utf-8").splitlines() if part.exists() else []
    done = len(lines) // len(facing) // BATCH  # batches
    write_atomically(part, "".join(f"{line}\n" for line in lines[: done * BATCH * len(facing)]).encode())
    for number, batch in enumerate(subject.source.batches(BATCH, subject.defense.device, start=done), start=done):
        count = min(len(batch.labels), images - number * BATCH)
        if count <= 0:
            break
        scores = subject.defense.scores(batch.images[:count])
        with one_thread():
            found = {patch: [sets(each, scores, best) for best in BEST] for patch, each in facing.items()}
        append(part, to_lines(number * BATCH, batch.labels[:count].tolist(), found))
        print(f"{number * BATCH + count} of {images} images", flush=True)
    whole = part.read_bytes()
    write_atomically(rows, pack(whole, rows.suffix))
    part.unlink()
    return summaries([json.loads(line) for line in whole.decode().splitlines()])


def to_lines(first: int, labels: list[int], found: dict[str, list[TopClasses]]) -> list[str]:
    """One line per image and patch; sets are numbers whose bit c is class c, members and proven for each k."""
    tables = {
        patch: torch.stack([torch.stack([bits(each.members), bits(each.proven)], dim=1) for each in several], dim=1)
        for patch, several in found.items()
    }  # n k 2
    return [
        json.dumps({"image": first + number, "label": label, "patch": patch, "sets": named(table[number].tolist())})
        + "\n"
        for number, label in enumerate(labels)
        for patch, table in tables.items()
    ]


def named(pairs: list[list[int]]) -> dict[str, list[int]]:
    return {str(best): pair for best, pair in zip(BEST, pairs, strict=True)}


def summaries(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By patch and k: shares of images whose label is in the set, or proven to stay there, and the sizes of sets."""
    found: dict[str, Any] = {}
    for patch in dict.fromkeys(row["patch"] for row in rows):
        mine = [row for row in rows if row["patch"] == patch]
        found[patch] = {str(best): summary([(row["label"], *row["sets"][str(best)]) for row in mine]) for best in BEST}
    return found


def summary(sets: list[tuple[int, int, int]]) -> dict[str, float]:
    """Of label, members and proven, as rows have them."""
    sizes = [members.bit_count() for _, members, _ in sets]
    return {
        "in_set": sum(members >> label & 1 for label, members, _ in sets) / len(sets),
        "proven": sum(proven >> label & 1 for label, _, proven in sets) / len(sets),
        "mean_size": sum(sizes) / len(sizes),
        "largest_size": max(sizes),
    }


def sets(defense: Defense, scores: IntegerScores, best: int) -> TopClasses:
    return TwoMask(defense.regions).certify_top(scores, best, defense.regions)


def attack_top(defense: Defense, subject: Subject, count: int, steps: int) -> dict[str, int]:
    """Drive the label out of the set of the first images, where its lead over the k-th rival is least."""
    tally = {"best": ATTACKED, "attacked": 0, "proven": 0, "out": 0, "broken": 0}
    for number, batch in enumerate(subject.source.batches(min(BATCH, count), subject.defense.device)):
        if tally["attacked"] >= count:
            break
        scores = defense.scores(batch.images)
        before = sets(defense, scores, ATTACKED)
        out = torch.zeros_like(own(before.members, batch.labels))
        goal, places = partial(mean_lead, labels=batch.labels, best=ATTACKED), weakest(defense, scores, batch, ATTACKED)
        for images in descend(defense, batch.images, places, goal, steps, number):
            out |= ~own(sets(defense, defense.scores(images), ATTACKED).members, batch.labels)
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
