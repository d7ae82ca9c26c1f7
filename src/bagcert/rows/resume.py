"""A rows file that grows batch by batch: a crash at any moment keeps whole batches, and the same command continues."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.files import append, pack, sha256, write_atomically
from bagcert.rows.format import (
    ATTACK,
    AttackRecord,
    Meta,
    Record,
    check_header,
    meta_path,
    read_meta,
    read_texts,
    to_line,
    write_meta,
)
from bagcert.rows.shards import shard_of, whole_header
from bagcert.rows.stored_scores import scores_folder
from bagcert.rows.table import ordered_columns


def usual_path(header: dict[str, Any]) -> Path:
    """A name of its own for each question, so that the same command continues and another one does not collide.

    Shards of one question differ in their numbers alone.
    """
    name = Path(str(header["model"])).name + ("-attack" if header.get("kind") == ATTACK else "")
    question = hashlib.sha256(json.dumps(whole_header(header)).encode()).hexdigest()[:8]
    shard = shard_of(header)
    part = f"-{shard.number}-of-{shard.of}" if shard else ""
    return Path("rows") / f"{name}-{header['split']}-{question}{part}.jsonl"


def resume(path: Path, header: dict[str, Any], batch: int) -> int:
    """How many images the file holds already, in whole batches; starts a new file if there is none.

    A line that a crash cut off is dropped.
    """
    header = json.loads(json.dumps(header))  # as it will be read
    if not meta_path(path).exists():
        start(path, header)
        return 0
    meta = read_meta(path)
    need_same(path, meta.header, header)
    if not path.exists() and meta.rows_sha256 is None:  # a crash between the two files
        append(path, [])
    records = sum(len(columns["image"]) for columns in ordered_columns(path, meta))
    images = records // len(meta.evaluations)
    if meta.rows_sha256 is not None:
        return images
    kept = images if images == meta.images else images // batch * batch
    lines = islice(read_texts(path), kept * len(meta.evaluations))
    write_atomically(path, "".join(lines).encode())
    return kept


def start(path: Path, header: dict[str, Any]) -> None:
    """Begin a file, unless something is in its way."""
    if path.exists():
        try:
            read_meta(path)
        except UsageError as error:
            raise UsageError(f"{error} Or choose another --out.") from error
    if scores_folder(path).exists():
        raise UsageError(f"{scores_folder(path)} holds scores of other rows. Move it away.")
    meta = Meta(header)
    try:
        check_header(meta)
    except ValueError as error:
        raise UsageError(f"This is more than one rows file holds ({error}). Certify in parts.") from error
    write_meta(path, meta)
    write_atomically(path, b"")


def need_same(path: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Refuse to continue rows of another question."""
    apart = [key for key in {**wanted, **found} if found.get(key) != wanted.get(key)]
    if apart:
        raise UsageError(f"{path} holds rows that differ in {', '.join(apart)}. Choose another --out.")


def append_records(path: Path, records: Iterable[Record | AttackRecord]) -> None:
    """Add a batch; it is on the disk when this returns."""
    append(path, [to_line(record) for record in records])


def finish(path: Path, results: list[dict[str, Any]]) -> None:
    """Bind the complete rows to the file beside them, with the accuracies."""
    meta = read_meta(path)
    write_meta(path, replace(meta, rows_sha256=sha256(path.read_bytes()), results=results))


def store(plain: Path, out: Path) -> None:
    """Move finished rows to a packed file, gzip or xz by its name; the file beside the rows marks it as complete."""
    meta = read_meta(plain)
    write_atomically(out, pack(plain.read_bytes(), out.suffix))
    write_meta(out, meta)
    for path in (plain, meta_path(plain)):
        if path not in (out, meta_path(out)):
            path.unlink()
