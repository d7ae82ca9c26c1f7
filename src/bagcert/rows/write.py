"""Certify a split and write its rows as they come: one forward pass per image serves all patches and rules."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bagcert.data import Batch, Source
from bagcert.defense import Defense
from bagcert.distributed import World
from bagcert.errors import UsageError
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.format import Evaluation, Record
from bagcert.rows.header import describe_scores
from bagcert.rows.prover import Prover
from bagcert.rows.resume import append_records, finish, resume
from bagcert.rows.stored_scores import digest, scores_folder, store_scores
from bagcert.scorers.base import Need
from bagcert.threats import Threat

BATCH = 96  # images; an interrupted call continues at a multiple of it. Splits among 1 to 4, 6, 8, 12 or 16 processes
SMALL_BATCH = 12  # if each image takes minutes
MANY_PIXELS = 2**23  # shown to the network for one image


@dataclass(frozen=True)
class Plan:
    """What to certify: the first `images` of a split, by each evaluation; with `scores` kept or not."""

    evaluations: list[Evaluation]
    images: int
    scores: bool = False
    masks: Mapping[str, Threat] = field(default_factory=dict)  # threats that come from files, by their texts

    @property
    def header(self) -> dict[str, Any]:
        """What the header says of it."""
        stored = {"scores_stored": True} if self.scores else {}
        return {**stored, "images": self.images, "evaluations": [asdict(entry) for entry in self.evaluations]}


def write_rows(
    path: Path,
    defense: Defense,
    plan: Plan,
    source: Source,
    facts: dict[str, Any],
    after_batch: Callable[[int], None] = lambda images: None,
    world: World | None = None,
) -> None:
    """Certify the images and write their rows; what an interrupted call wrote is kept and continued.

    In a world of several processes each certifies its part of every batch and the first one writes, so the rows are
    those of a single process.
    """
    world = world or World(defense.device)
    provers: list[Prover] = []
    for entry in plan.evaluations:  # from one to the next, so that evaluations of one patch share their scores
        last = provers[-1].defense if provers else defense
        provers.append(Prover(last, entry, plan.masks.get(entry.patch)))
    for prover in provers:
        prover.defense.check()
    size = batch_size(provers)
    if size % world.size:
        raise UsageError(f"The number of processes must divide {size}, but is {world.size}. Use fewer.")
    header = {**facts, **scores_facts(defense, provers, plan.scores), **plan.header}
    done = int(world.share(resume(path, header, size) if world.is_main else 0))
    after_batch(done)
    first = -(-done // size)
    batches = source.batches(size, defense.device, start=first, shard=world.shard)
    for number, batch in enumerate(islice(batches, max(0, -(-plan.images // size) - first)), start=first):
        parts = world.gather(certified(batch, provers, plan))
        if world.is_main:
            if plan.scores:  # before their rows: a row promises that its scores are there
                store_scores(scores_folder(path), number * size, torch.cat([scores for _, scores in parts]).numpy())
            records = [record for part, _ in parts for record in part]
            append_records(path, records)
            after_batch(len(records) // len(provers))
    if world.is_main:
        finish(path, summary(read_rows(path, finished=False)))


def batch_size(provers: list[Prover]) -> int:
    """How many images to certify before their rows are written."""
    shown = (each.defense.scorer.passes * math.prod(each.defense.threat.image_size) for each in provers)
    return SMALL_BATCH if max(shown) > MANY_PIXELS else BATCH


def scores_facts(defense: Defense, provers: list[Prover], kept: bool) -> dict[str, Any]:
    """What the header says of the scores; those that are kept must be the same for all evaluations."""
    scorers = [prover.defense.scorer for prover in provers]
    if all(scorer is defense.scorer for scorer in scorers):
        return {}
    patches = {str(prover.defense.threat) for prover in provers}  # the network looks at images another way for each
    kinds = {scorer.views for scorer in scorers}  # and for each kind of rule
    if len(patches) == len(kinds) == 1:
        return describe_scores(scorers[0])
    if kept:
        odd = f"patch, so --scores takes one patch, not {len(patches)}" if len(patches) > 1 else "rule, so choose one"
        raise UsageError(f"The views of this network depend on the {odd}. Certify each on its own.")
    footprint = defense.scorer.footprint
    size, field = list(footprint.image_size), list(footprint.receptive_field)
    return {"footprint": {"image_size": size, "receptive_field": field}}


def certified(batch: Batch, provers: list[Prover], plan: Plan) -> tuple[list[Record], Tensor]:
    """The records of a batch, image after image, and its scores on the CPU as int32."""
    first = provers[0].defense
    wanted = batch.index < plan.images
    images, labels, numbers = batch.images[wanted], batch.labels[wanted].tolist(), batch.index[wanted].tolist()
    if not numbers:  # fewer images left than processes
        return [], torch.empty(0, len(first.classes), *first.scorer.footprint.grid, dtype=torch.int32)
    need = Need.ALL if plan.scores else Need.PROOF
    scores = first.scores(images, need)
    values = scores.values.to(torch.int32).cpu()
    digests = [digest(value.numpy()) for value in values] if plan.scores else []
    tables, known = [], {first.scorer: scores}
    for prover in provers:
        if prover.defense.scorer not in known:  # it looks at the images another way for each threat
            known[prover.defense.scorer] = prover.defense.scores(images, need)
        tables.append(prover.records(numbers, labels, known[prover.defense.scorer], digests))
    return [record for records in zip(*tables, strict=True) for record in records], values
