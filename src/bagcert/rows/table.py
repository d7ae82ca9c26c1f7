"""All records of a file as tensors, in the order that the file beside them gives."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rows.format import ALERTS, Columns, Meta, kind_command, read_columns, read_meta
from bagcert.rows.shards import need_whole, numbers_of

NOWHERE = (-1, -1, -1, -1)  # in place of a placement that is not there

Table = dict[str, Tensor]  # [images evaluations], of placements [images evaluations 4]; no texts


def read_table(path: Path, kind: str, finished: bool, shard: bool = False) -> tuple[Meta, Table]:
    """Every field but the texts; a file that lacks records or is not finished is refused, and one of a shard unless
    the caller knows what to do with it.

    Where an evaluation has no alerts, their fields are false.
    """
    meta = read_meta(path, kind)
    if not shard:
        need_whole(path, meta.header)
    parts: dict[str, list[Tensor]] = {name: [] for name, wanted in meta.fields.items() if wanted is not str}
    images = 0
    for columns in ordered_columns(path, meta):
        count = len(columns["image"]) // len(meta.evaluations)
        images += count
        for name, tensors in parts.items():
            values = columns[name][: count * len(meta.evaluations)]
            tensors.append(to_tensor(path, [value is True for value in values] if name in ALERTS else values, meta))
    if images != meta.images or (finished and meta.rows_sha256 is None):
        held = (
            f"all {images} images, but is not finished"
            if images == meta.images
            else f"{images} of {meta.images} images"
        )
        raise UsageError(f"{path} holds {held}. Repeat the same bagcert {kind_command(kind)} command: it continues.")
    whole = {name: torch.cat(tensors) for name, tensors in parts.items()}
    table = {name: values.reshape(images, len(meta.evaluations), *values.shape[1:]) for name, values in whole.items()}
    if not bool((table["label"] == table["label"][:, :1]).all()):
        raise UsageError(f"Some image in {path} has several labels. {kind_command(kind).capitalize()} again.")
    return meta, table


def ordered_columns(path: Path, meta: Meta) -> Iterator[Columns]:
    """The fields of all records, refused unless image follows image, each under every evaluation in turn."""
    first, done, evaluations = numbers_of(meta.header).start, 0, meta.evaluations
    patches, rules = [entry.patch for entry in evaluations], [entry.rule for entry in evaluations]
    for columns in read_columns(path, meta):
        count = len(columns["image"])
        images = [first + (done + place) // len(evaluations) for place in range(count)]
        repeats = count // len(evaluations) + 1
        wanted: Columns = {"image": images, "patch": (patches * repeats)[:count], "rule": (rules * repeats)[:count]}
        if any(columns[name] != values for name, values in wanted.items()):
            raise UsageError(
                f"The records in {path} must go image by image from {first}, each under every evaluation in turn, but "
                f"do not. {kind_command(meta.kind).capitalize()} again."
            )
        yield columns
        done += count


def to_tensor(path: Path, values: list[Any], meta: Meta) -> Tensor:
    """Numbers, flags or placements."""
    try:
        if values and (values[0] is None or isinstance(values[0], tuple)):
            values = [NOWHERE if value is None else value for value in values]
            return torch.from_numpy(np.array(values, dtype=np.int64))
        return torch.from_numpy(np.array(values, dtype=np.bool_ if values and type(values[0]) is bool else np.int64))
    except (OverflowError, ValueError) as error:
        raise UsageError(
            f"Some numbers in {path} do not fit into 64 bits ({error}). "
            f"Make the file again with bagcert {kind_command(meta.kind)}."
        ) from error
