"""Rows written and changed by hand, as a forger would: the digest beside them is that of the changed rows."""

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bagcert.files import pack, sha256
from bagcert.rows.format import FORMAT, VERSION, AttackRecord, Record, meta_path


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The records of a plain file as plain objects."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path: Path, lines: list[Any], seal: bool = True) -> None:
    """Write these objects in place of the records, and their digest beside them."""
    content = "".join(json.dumps(line) + "\n" for line in lines).encode()
    path.write_bytes(content if path.suffix == ".jsonl" else pack(content, path.suffix))
    if seal:
        edit_meta(path, lambda meta: meta.update(rows_sha256=sha256(content)))


def edit_lines(path: Path, edit: Callable[[dict[str, Any]], object], **wanted: Any) -> None:
    """Change the records that have these values."""
    lines = lines_of(path)
    chosen = [line for line in lines if all(line[name] == value for name, value in wanted.items())]
    assert chosen
    for line in chosen:
        edit(line)
    write_lines(path, lines)


def edit_meta(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    meta = json.loads(meta_path(path).read_text())
    edit(meta)
    meta_path(path).write_text(json.dumps(meta))


def unfinish(path: Path) -> None:
    """As it is before the last record is there."""
    edit_meta(path, lambda meta: [meta.pop(key, None) for key in ("rows_sha256", "results")])


def make_rows(path: Path, header: dict[str, Any], records: list[Any], seal: bool = True) -> Path:
    """Rows with this header; records may be plain objects."""
    meta_path(path).write_text(json.dumps({"format": FORMAT, "version": VERSION, **header, "results": []}))
    plain = [asdict(each) if isinstance(each, Record | AttackRecord) else each for each in records]
    write_lines(path, plain, seal)
    return path
