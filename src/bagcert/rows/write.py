"""Certify a split and write its rows as they come: one forward pass per image serves all patches and rules."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from bagcert.data import Batch, Source
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.files import append, write_atomically
from bagcert.rows.format import Evaluation, parse_lines, summary, to_rows
from bagcert.rows.header import describe_scores
from bagcert.rows.prover import Prover
from bagcert.rows.stored_scores import digest, scores_folder, store_scores


def resume(path: Path, header: dict[str, Any], batch: int) -> int:
    """How many images the file holds already, in whole batches; starts a new file where there is none.

    A line that a crash cut off is dropped.
    """
    if not path.exists():
        if scores_folder(path).exists():
            raise UsageError(f"expected no scores of other rows in {scores_folder(path)}, got some; move them away")
        write_atomically(path, (json.dumps(header) + "\n").encode())
        return 0
    try:
        lines = parse_lines(path)
    except UsageError as error:
        raise UsageError(
            f"expected rows of certificates in {path}, got something else; choose another --out"
        ) from error
    need_same(path, lines.header, header)
    if [row[0] for row in lines.images] != list(range(len(lines.images))):
        raise UsageError(f"expected rows numbered from 0 in {path}, got a gap; choose another --out")
    written = len(lines.images)
    if lines.footer is not None:
        return written
    kept = written if written == header["images"] else written // batch * batch
    texts = path.read_bytes().splitlines()[: kept + 1]
    write_atomically(path, b"".join(text + b"\n" for text in texts))
    return kept


def need_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to go on with rows whose first line says something else."""
    apart = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
    if apart:
        raise UsageError(f"expected rows with the same {', '.join(apart)} in {path}, got others; choose another --out")


BATCH = 96  # images; an interrupted call continues at a multiple of it. Splits among 1 to 4, 6, 8, 12 or 16 processes


@dataclass(frozen=True)
class Plan:
    """What to certify: the first `images` of a split, by each evaluation; with `scores` kept or not."""

    evaluations: list[Evaluation]
    images: int
    scores: bool = False


def write_rows(
    path: Path,
    defense: Defense,
    plan: Plan,
    source: Source,
    facts: dict[str, Any],
    after_batch: Callable[[int], None] = lambda images: None,
) -> None:
    """Certify the images and write their rows; what an interrupted call wrote is kept and continued.

    Under torchrun each process certifies its part of every batch and the first one writes, so the rows are those of a
    single process.
    """
    provers = [Prover(defense.against(entry.patch, entry.rule)) for entry in plan.evaluations]
    for prover in provers:
        prover.defense.check()
    evaluations = [asdict(entry) for entry in plan.evaluations]
    header = {**facts, **scores_facts(defense, provers, plan.scores), "images": plan.images, "evaluations": evaluations}
    rank, world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if BATCH % world:
        raise UsageError(f"expected a number of processes that divides {BATCH}, got {world}; use fewer")
    done = shared(resume(path, header, BATCH) if rank == 0 else 0)
    after_batch(done)
    device = next(defense.scorer.parameters()).device
    first = -(-done // BATCH)
    batches = source.batches(BATCH, device, start=first, shard=(rank, world))
    for number, batch in enumerate(islice(batches, max(0, -(-plan.images // BATCH) - first)), start=first):
        parts = gathered(certified(batch, provers, plan))
        if rank == 0:
            lines = [line for part, _ in parts for line in part]
            if plan.scores:  # before their rows: a row promises that its scores are there
                store_scores(scores_folder(path), number * BATCH, torch.cat([scores for _, scores in parts]).numpy())
            append(path, lines)
            after_batch(len(lines))
    if rank == 0:
        finish(path)


def scores_facts(defense: Defense, provers: list[Prover], kept: bool) -> dict[str, Any]:
    """What the first line says of the scores; those that are kept must be the same for all evaluations."""
    stored = {"scores_stored": True} if kept else {}
    if provers[0].defense.scorer is defense.scorer:
        return stored
    patches = {str(prover.defense.threat) for prover in provers}  # the network looks at images another way for each
    if len(patches) > 1:
        if not kept:
            footprint = defense.scorer.footprint
            size, field = list(footprint.image_size), list(footprint.receptive_field)
            return {"footprint": {"image_size": size, "receptive_field": field}}
        raise UsageError(
            f"expected one patch for a network whose views depend on it, got {len(patches)} with --scores; "
            "certify each on its own"
        )
    return {**stored, **describe_scores(provers[0].defense.scorer)}


def certified(batch: Batch, provers: list[Prover], plan: Plan) -> tuple[list[str], Tensor]:
    """The lines of a batch, and its scores on the CPU as int32."""
    first = provers[0].defense
    wanted = batch.index < plan.images
    images, labels, numbers = (part[wanted] for part in (batch.images, batch.labels, batch.index))
    if not len(images):  # fewer images left than processes
        return [], torch.empty(0, len(first.classes), *first.scorer.footprint.grid, dtype=torch.int32)
    scores = first.scores(images)
    results = []
    for prover in provers:
        shared = prover.defense.scorer is first.scorer  # unless it looks at the images another way for each threat
        results.append(prover.results(scores if shared else prover.defense.scores(images), plan.scores))
    values = scores.values.to(torch.int32).cpu()
    lines = []
    for place, (number, label) in enumerate(zip(numbers.tolist(), labels.tolist(), strict=True)):
        row = [number, label, [result[place] for result in results]]
        if plan.scores:
            row.append(digest(values[place].numpy()))
        lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    return lines, values


def finish(path: Path) -> None:
    """Add the last line, unless it is there."""
    lines = parse_lines(path)
    if lines.footer is None:
        append(path, [json.dumps({"results": summary(to_rows(path, lines))}) + "\n"])


def gathered(part: tuple[list[str], Tensor]) -> list[tuple[list[str], Tensor]]:
    """The parts of all processes, on the first one; of the others, nothing."""
    if not dist.is_initialized():
        return [part]
    parts: list[tuple[list[str], Tensor]] | None = [part] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(part, parts)
    return parts or []


def shared(number: int) -> int:
    """The first process's number, for all."""
    if not dist.is_initialized():
        return number
    box = [number]
    dist.broadcast_object_list(box)
    return int(box[0])
