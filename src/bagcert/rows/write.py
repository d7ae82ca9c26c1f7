"""Certify a split and write its rows as they come: one forward pass per image serves all patches and rules."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
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
from bagcert.rows.shards import Shard
from bagcert.rows.stored_scores import digest, scores_folder, store_scores
from bagcert.scorers.base import Need
from bagcert.threats import Threat

BATCH = 96  # images of each process; an interrupted call continues at a multiple of it
SMALL_BATCH = 12  # if each image takes minutes
MANY_PIXELS = 2**23  # shown to the network for one image


@dataclass(frozen=True)
class Plan:
    """What to certify: the first `images` of a split, or a shard of them, by each evaluation; `scores` kept or not."""

    evaluations: list[Evaluation]
    images: int
    scores: bool = False
    masks: Mapping[str, Threat] = field(default_factory=dict)  # threats that come from files, by their texts
    shard: Shard | None = None

    @property
    def part(self) -> range:
        """The numbers of the images to certify."""
        return self.shard.part if self.shard else range(self.images)

    @property
    def header(self) -> dict[str, Any]:
        """What the header says of it."""
        stored = {"scores_stored": True} if self.scores else {}
        shard = self.shard.header if self.shard else {}
        return {**stored, "images": len(self.part), "evaluations": [asdict(each) for each in self.evaluations], **shard}


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

    In a world of several processes each certifies as many images at a time as a single one would, and the first one
    writes, so the rows are those of a single process.
    """
    world = world or World(defense.device)
    provers = provers_of(defense, plan.evaluations, plan.masks)
    size = batch_size(provers)
    header = {**facts, **scores_facts(defense, provers, plan.scores), **plan.header}
    if plan.shard:
        header["shard"]["batch"] = size
    done = int(world.share(resume(path, header, size) if world.is_main else 0))
    after_batch(done)
    first = plan.part.start + done
    left = source.between(first, plan.part.stop)
    for batch in left.batches(size * world.size, defense.device, shard=world.shard):
        found = world.gather(certified(batch, first, provers, plan.scores))
        if world.is_main:
            records = [record for part, _ in found for record in part]
            if plan.scores:  # before their rows: a row promises that its scores are there
                scores = torch.cat([part for _, part in found])
                for place, chunk in enumerate(torch.split(scores, size)):
                    store_scores(scores_folder(path), records[0].image + place * size, chunk.numpy())
            append_records(path, records)
            after_batch(len(records) // len(provers))
    if world.is_main:
        finish(path, summary(read_rows(path, finished=False, shard=plan.shard is not None)))


def provers_of(
    defense: Defense, evaluations: Sequence[Evaluation], masks: Mapping[str, Threat] | None = None
) -> list[Prover]:
    """The defense under each evaluation; those of one patch share their scores. Refused if a rule does not fit them."""
    provers: list[Prover] = []
    for entry in evaluations:
        last = provers[-1].defense if provers else defense
        provers.append(Prover(last, entry, (masks or {}).get(entry.patch)))
    for prover in provers:
        prover.defense.check()
    return provers


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


def certified(batch: Batch, begin: int, provers: list[Prover], kept: bool) -> tuple[list[Record], Tensor]:
    """The records of a batch, image after image, and its scores on the CPU as int32, if they are kept.

    `begin` is the number of the first image of all batches.
    """
    first = provers[0].defense
    images, labels, numbers = batch.images, batch.labels.tolist(), (batch.index + begin).tolist()
    values = torch.empty(0, len(first.classes), *first.scorer.footprint.grid, dtype=torch.int32)
    if not numbers:  # fewer images left than processes
        return [], values
    need = Need.ALL if kept else Need.PROOF
    scores = first.scores(images, need)
    values = scores.values.to(torch.int32).cpu() if kept else values
    digests = [digest(value.numpy()) for value in values]
    tables, known = [], {first.scorer: scores}
    for prover in provers:
        if prover.defense.scorer not in known:  # it looks at the images another way for each threat
            known[prover.defense.scorer] = prover.defense.scores(images, need)
        tables.append(prover.records(numbers, labels, known[prover.defense.scorer], digests))
    return [record for records in zip(*tables, strict=True) for record in records], values
