"""All shards of a split as one file: the very rows that a run over the whole would have written.

Rows are joined if they answer the same question by the same program, each shard is there once, and every digest holds.
That no certificate was forged before it was sealed is for `bagcert verify` to say, of a shard or of the whole.
"""

from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bagcert.errors import UsageError
from bagcert.files import sha256, write_atomically
from bagcert.rows.certified import read_rows, summary
from bagcert.rows.format import CERTIFICATES, Meta, read_meta, read_records, read_texts
from bagcert.rows.resume import finish, resume
from bagcert.rows.shards import Shard, shard_of, whole_header
from bagcert.rows.stored_scores import Integers, ScoreFiles, digest, scores_folder, store_scores

Parts = list[tuple[Path, Meta]]  # in their order


def join_rows(paths: list[Path], out: Path, after_image: Callable[[int], None] = lambda images: None) -> None:
    """Write the rows of all shards to `out`. Nothing is written unless all fit; an interrupted call can be repeated."""
    parts = in_order(paths)
    header = whole_header(parts[0][1].header)
    for path, _ in parts:
        after_image(len(read_rows(path, shard=True)))  # finished, in order, and by its digest
    content = "".join(line for path, _ in parts for line in read_texts(path)).encode()
    scored, batch = parts[0][1].scores_stored, score_batch(parts)
    if scored:
        for _ in all_scores(parts):  # all fit, before the first is written
            pass
    resume(out, header, batch)
    found = read_meta(out).rows_sha256
    if found not in (None, sha256(content)):
        raise UsageError(f"{out} holds other rows than these shards. Choose another --out.")
    if found is not None:
        return
    if scored:
        store_all(out, all_scores(parts), batch)
    write_atomically(out, content)
    finish(out, summary(read_rows(out, finished=False)))


def in_order(paths: list[Path]) -> Parts:
    """The parts by their numbers, refused unless they are all shards of one whole."""
    found: dict[int, tuple[Path, Meta]] = {}
    for path in paths:
        meta = read_meta(path, CERTIFICATES)
        shard = shard_of(meta.header)
        if shard is None:
            raise UsageError(f"{path} is no shard. Join what bagcert certify --shard wrote.")
        if shard.number in found:
            raise UsageError(f"{found[shard.number][0]} and {path} are both {shard}. Name one of them.")
        need_alike(*next(iter(found.values()), (path, meta)), path, meta)
        found[shard.number] = (path, meta)
    parts = [found[number] for number in sorted(found)]
    shards = [part_of(meta) for _, meta in parts]
    missing = sorted(set(range(1, shards[0].of + 1)) - found.keys())
    if missing:
        listed = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        raise UsageError(f"Of {shards[0].of} shards, {listed} {'are' if missing[1:] else 'is'} missing. Name all.")
    ends = [0, *(shard.part.stop for shard in shards)]
    for (path, _), shard, (begin, _) in zip(parts, shards, pairwise(ends), strict=True):
        if shard.part.start != begin:
            raise UsageError(f"{path} must begin at image {begin}, but begins at {shard.part.start}. Certify it again.")
    if ends[-1] != shards[-1].images:
        raise UsageError(f"The shards end at image {ends[-1]} of {shards[-1].images}. Certify the last one again.")
    return parts


def part_of(meta: Meta) -> Shard:
    shard = shard_of(meta.header)
    assert shard is not None
    return shard


def need_alike(first: Path, meta: Meta, path: Path, other: Meta) -> None:
    """Refuse parts of another question or by another program."""
    tables = [question(each.header) for each in (meta, other)]
    apart = [name for name in tables[0] | tables[1] if tables[0].get(name) != tables[1].get(name)]
    if apart:
        raise UsageError(
            f"{path} and {first} differ in {', '.join(apart)}. Certify all shards by the same command and program."
        )


def question(header: dict[str, Any]) -> dict[str, Any]:
    """All that the shards of one whole have in common."""
    more = {name: value for name, value in header["shard"].items() if name not in ("number", "first", "images")}
    return {**whole_header(header), "shards": more.pop("of"), **{f"shard {name}": more[name] for name in more}}


def score_batch(parts: Parts) -> int:
    """How many images a file of scores holds in a run over the whole."""
    path, meta = parts[0]
    batch = meta.header["shard"].get("batch")
    if type(batch) is not int or batch < 1:
        raise UsageError(f"{path} does not say how many images were certified at a time. Certify it again.")
    return batch


def all_scores(parts: Parts) -> Iterator[Integers]:
    """The scores [k i j] of image after image, refused unless they are those that its row names by digest."""
    for path, meta in parts:
        try:
            files = ScoreFiles(path, meta.header)
        except (KeyError, TypeError) as error:
            raise UsageError(f"{path} does not say what its scores are ({error}). Certify it again.") from error
        for record in islice(read_records(path, meta), 0, None, len(meta.evaluations)):
            scores = files.image(record.image)
            if scores is None or digest(scores) != record.scores_sha256:
                wrong = "are not there" if scores is None else "are not those that its row names by digest"
                raise UsageError(f"The scores of image {record.image} of {path} {wrong}. Copy {files.folder} again.")
            yield scores


def store_all(out: Path, scores: Iterator[Integers], batch: int) -> None:
    first = 0
    while chunk := list(islice(scores, batch)):
        store_scores(scores_folder(out), first, np.stack(chunk))
        first += len(chunk)
