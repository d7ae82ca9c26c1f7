"""Go on with rows that an interrupted call left: whole batches are kept, a file of another question is not touched."""

import json
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.evaluation.rows import parse_lines
from bagcert.evaluation.scores import scores_folder
from bagcert.files import write_atomically


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
