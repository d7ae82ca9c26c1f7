"""Rows: one JSON object per line for one image under one evaluation, and beside them what was certified with what.

NAME.jsonl       the records; NAME.jsonl.gz or NAME.jsonl.xz when stored
NAME.meta.json   format and version, model, data, program, evaluations, number of images; once all records are there,
                 their SHA-256 and the accuracies
NAME.scores/     the scores, if they were asked for; see stored_scores.py

docs/rows.md lists the fields. Readers ignore fields that they do not know, so that new ones need no new version.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from bagcert.errors import UsageError
from bagcert.files import read_json, read_lines, write_atomically
from bagcert.rows.shards import shard_of
from bagcert.rules import raises_alerts

FORMAT, VERSION = "bagcert rows", 1
CERTIFICATES, ATTACK = "certificates", "attack"

# What a reader believes before it refuses. Every image of ImageNet under six evaluations fits.
MOST_IMAGES, MOST_RECORDS, MOST_EVALUATIONS = 2**22, 2**23, 2**10
MOST_SIDE = 2**12  # pixels of an image
MOST_BYTES = 2**30  # of records, unpacked
LONGEST_LINE, MOST_META_BYTES = 2**12, 2**20
AT_ONCE = 2**12  # records parsed at a time

Placement = tuple[int, int, int, int]  # row, column, height, width in pixels
Columns = dict[str, list[Any]]  # the fields of some records, by name


@dataclass(frozen=True)
class Evaluation:
    """One patch, certified by one rule; a masking rule is built anew for each patch."""

    patch: str
    rule: str


@dataclass(frozen=True, slots=True)
class Record:
    """One image under one evaluation.

    The last two fields are there if the rule raises alerts, those between `certified` and them if scores were stored.
    """

    patch: str
    rule: str
    image: int
    label: int
    predicted: int
    certified: bool
    lead: int | None = None
    weakest_class: int | None = None
    weakest_placement: Placement | None = None
    second_placement: Placement | None = None  # of rules with pairs of masks
    certified_square: int | None = None  # the side of the largest one; 0 if there is none
    scores_sha256: str | None = None  # its first 16 digits
    alert: bool | None = None
    detectable: bool | None = None


@dataclass(frozen=True, slots=True)
class AttackRecord:
    """One image under attack: the class under the best attack, and where its patch sits if it changed the class.

    Alert and detectable are those of the clean image, there if the rule raises alerts. An attack then counts only if it
    avoids the alert, unless the class is certified.
    """

    patch: str
    rule: str
    image: int
    label: int
    predicted: int
    certified: bool
    attacked: int
    placement: Placement | None
    alert: bool | None = None
    detectable: bool | None = None
    other_placements: tuple[Placement, ...] = ()  # of several patches at once


BASIC: dict[str, type] = {"patch": str, "rule": str, "image": int, "label": int, "predicted": int, "certified": bool}
DETAILS: dict[str, type] = {
    "lead": int,
    "weakest_class": int,
    "weakest_placement": tuple,
    "second_placement": tuple,
    "certified_square": int,
    "scores_sha256": str,
}
ATTACKED: dict[str, type] = {"attacked": int, "placement": tuple}
ALERTS: dict[str, type] = {"alert": bool, "detectable": bool}


def to_line(record: Record | AttackRecord) -> str:
    """A record as it is written."""
    bare = isinstance(record, Record) and record.lead is None  # without scores
    names = [*BASIC, *ALERTS] if bare else [field.name for field in fields(record)]
    absent = {name for name in (*ALERTS, "other_placements") if getattr(record, name, None) in (None, ())}
    written = {name: getattr(record, name) for name in names if name not in absent}
    return json.dumps(written, separators=(",", ":")) + "\n"


@dataclass(frozen=True)
class Meta:
    """The file beside the rows. The header says what was certified with what; the rest comes with the last record."""

    header: dict[str, Any]
    rows_sha256: str | None = None
    results: list[dict[str, Any]] | None = None

    @property
    def kind(self) -> str:
        return str(self.header.get("kind", CERTIFICATES))

    @property
    def images(self) -> int:
        return int(self.header["images"])

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """An attack is under a single evaluation."""
        entries = [self.header] if self.kind == ATTACK else self.header["evaluations"]
        return tuple(Evaluation(entry["patch"], entry["rule"]) for entry in entries)

    @property
    def scores_stored(self) -> bool:
        return self.header.get("scores_stored") is True

    @property
    def fields(self) -> dict[str, type]:
        """The fields that each record must have; those of alerts if its rule raises any."""
        more = ATTACKED if self.kind == ATTACK else DETAILS if self.scores_stored else {}
        alerts = ALERTS if any(raises_alerts(entry.rule) for entry in self.evaluations) else {}
        return BASIC | more | alerts


def rows_name(path: Path) -> str:
    """The NAME of NAME.jsonl, packed or not."""
    return path.name.removesuffix(".gz").removesuffix(".xz").removesuffix(".jsonl")


def meta_path(path: Path) -> Path:
    """Where the file beside the rows lies."""
    return path.with_name(rows_name(path) + ".meta.json")


def write_meta(path: Path, meta: Meta) -> None:
    """One line per field, so that people can read it as well."""
    done = {} if meta.rows_sha256 is None else {"rows_sha256": meta.rows_sha256, "results": meta.results}
    content = {"format": FORMAT, "version": VERSION, **meta.header, **done}
    lines = (f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in content.items())
    write_atomically(meta_path(path), ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_meta(path: Path, kind: str | None = None) -> Meta:
    """The file beside the rows at `path`, refused unless it is of this kind, if one is given."""
    what = {ATTACK: "rows of an attack", None: "rows"}.get(kind, "rows of an evaluation")
    command, beside = kind_command(kind), meta_path(path)
    if not beside.exists():
        if not path.exists():
            raise UsageError(f"There is no file {path}. Make it with bagcert {command}.")
        if is_older(path):
            raise UsageError(f"{path} was made by an older version. {command.capitalize()} again.")
        if ".jsonl" not in path.name:
            raise UsageError(f"{path} is not a file of rows, NAME.jsonl or packed. Make one with bagcert {command}.")
        raise UsageError(f"{path} has no {beside.name} beside it. Copy both files.")
    if beside.stat().st_size > MOST_META_BYTES:
        raise UsageError(f"{beside} is too large to belong to rows. Copy it again.")
    found = read_json(beside)
    if found.pop("format", None) != FORMAT:
        raise UsageError(f"{beside} does not name the format '{FORMAT}'. Copy it again.")
    if found.pop("version", None) != VERSION:
        raise UsageError(f"{path} is not in version {VERSION} of the format. Install the bagcert that made it.")
    try:
        meta = Meta(found, found.pop("rows_sha256", None), found.pop("results", None))
        check_header(meta)
        if kind is not None and meta.kind != kind:
            raise ValueError(f"it is of kind {meta.kind}")
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(f"{path} does not hold {what} ({error}). Make it with bagcert {command}.") from error
    return meta


def kind_command(kind: str | None) -> str:
    return "attack" if kind == ATTACK else "certify"


def is_older(path: Path) -> bool:
    """Whether the first line is the header that rows had before they had names."""
    try:
        header = json.loads(next(read_lines(path, MOST_META_BYTES, 1, MOST_META_BYTES)))
    except (OSError, EOFError, StopIteration, RecursionError, ValueError):
        return False
    return isinstance(header, dict) and "images" in header and ("evaluations" in header or "kind" in header)


def check_header(meta: Meta) -> None:
    """Refuse what no reader should believe: counts and sizes for which it would run out of memory."""
    header = meta.header
    if meta.kind not in (CERTIFICATES, ATTACK):
        raise ValueError(f"it is of kind {meta.kind}")
    if type(header["images"]) is not int or not 1 <= header["images"] <= MOST_IMAGES:
        raise ValueError(f"{header['images']!r:.40} images")
    shard_of(header)
    evaluations = meta.evaluations
    if not all(isinstance(text, str) for entry in evaluations for text in (entry.patch, entry.rule)):
        raise ValueError("an evaluation without a patch and a rule")
    if not 1 <= len(set(evaluations)) == len(evaluations) <= min(MOST_EVALUATIONS, MOST_RECORDS // meta.images):
        raise ValueError(f"{len(evaluations)} evaluations")
    footprint = header.get("footprint", {})
    if not isinstance(footprint, dict):
        raise ValueError("a footprint that is no object")
    for key in ("image_size", "grid", "receptive_field"):
        sides = footprint.get(key, [1, 1])
        if not (isinstance(sides, list) and len(sides) == 2 and all(type(side) is int and side > 0 for side in sides)):
            raise ValueError(f"a footprint whose {key} is no pair of numbers")
    for number in numbers_in(footprint):
        if type(number) is not int or not 0 <= number <= MOST_SIDE:
            raise ValueError(f"{number!r:.40} in the footprint")
    if meta.rows_sha256 is not None and not (isinstance(meta.rows_sha256, str) and isinstance(meta.results, list)):
        raise ValueError("a digest without results")


def numbers_in(table: Any) -> Iterator[Any]:
    """Every value in objects and lists inside each other."""
    parts = table.values() if isinstance(table, dict) else table if isinstance(table, list) else None
    if parts is None:
        yield table
        return
    for part in parts:
        yield from numbers_in(part)


def read_columns(path: Path, meta: Meta) -> Iterator[Columns]:
    """The fields of the records, whole images at a time, each of its type.

    A last line that a crash cut off is left out. Records that do not match the digest in the file beside them are
    refused after the last one.
    """
    digest, texts = hashlib.sha256(), read_texts(path, len(meta.evaluations) * meta.images)
    size = len(meta.evaluations) * max(1, AT_ONCE // len(meta.evaluations))
    try:
        while part := list(islice(texts, size)):
            whole = part if part[-1].endswith("\n") else part[:-1]
            digest.update("".join(part).encode())
            objects = json.loads(f"[{','.join(whole)}]")
            if len(objects) != len(whole):
                raise ValueError("lines that are not one object each")
            yield to_columns(objects, meta.fields)
    except (OSError, EOFError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise UsageError(
            f"The {meta.kind} in {path} cannot be read ({type(error).__name__}: {error}). "
            f"Make the file again with bagcert {kind_command(meta.kind)}."
        ) from error
    if meta.rows_sha256 not in (None, digest.hexdigest()):
        raise UsageError(
            f"{path} does not match the SHA-256 in {meta_path(path).name}. "
            f"Copy both files again, or {kind_command(meta.kind)} again."
        )


def to_columns(objects: list[dict[str, Any]], types: dict[str, type]) -> Columns:
    """The values of each field, refused unless all are of its type."""
    columns: Columns = {}
    for name, wanted in types.items():
        missing = [name in ALERTS and not raises_alerts(record["rule"]) for record in objects]
        values = [None if left_out else record[name] for record, left_out in zip(objects, missing, strict=True)]
        if wanted is tuple:
            values = [None if value is None else to_placement(value) for value in values]
        elif not {type(value) for value, left_out in zip(values, missing, strict=True) if not left_out} <= {wanted}:
            raise ValueError(f"{name} that is no {wanted.__name__}")
        columns[name] = values
    return columns


def to_placement(value: Any) -> Placement:
    if not (isinstance(value, list) and len(value) == 4 and all(type(number) is int for number in value)):
        raise ValueError("a placement that is not four numbers")
    return value[0], value[1], value[2], value[3]


def read_records(path: Path, meta: Meta) -> Iterator[Record]:
    """The certificates of a file one by one, in the order of its lines."""
    for columns in read_columns(path, meta):
        for values in zip(*columns.values(), strict=True):
            yield Record(**dict(zip(columns, values, strict=True)))


def read_texts(path: Path, most_lines: int = MOST_RECORDS) -> Iterator[str]:
    """The lines of a plain or packed file of rows, with their ends; ValueError if it is larger than rows are."""
    return read_lines(path, MOST_BYTES, most_lines, LONGEST_LINE)
