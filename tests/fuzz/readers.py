"""The readers, a good input of each, and how a forger seals what was changed in it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

import bagcert
from bagcert.errors import UsageError
from bagcert.files import sha256
from bagcert.pictures import Framing
from bagcert.pictures.sources import frame_pictures
from bagcert.report.inputs import read_inputs
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import ATTACK, Evaluation, Record
from bagcert.rows.header import describe
from bagcert.rows.verify.check import verify_rows
from bagcert.rows.write import Plan, write_rows
from bagcert.threats.masks_file import read_masks
from bagcert.training.recipe import load_recipe
from tests.rows.digit_runs import DIGITS, save_digit_run
from tests.rows.forging import make_rows
from tests.server.conftest import file_of, photos


@dataclass(frozen=True)
class Reader:
    """`make` fills a folder with a good input, `read` reads it; `files` are those that strangers change."""

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    files: tuple[str, ...]
    seal: Callable[[Path], object] = lambda folder: None


def make_model(folder: Path) -> None:
    save_digit_run(folder / "model")


def seal_model(folder: Path) -> None:
    """The card names the digest of the weights as they are."""
    card = parsed(folder / "model" / "config.json")
    if isinstance(card, dict) and "weights_sha256" in card:
        card["weights_sha256"] = sha256((folder / "model" / "weights.safetensors").read_bytes())
        (folder / "model" / "config.json").write_text(json.dumps(card), encoding="utf-8")


def make_certified(folder: Path) -> None:
    defense = bagcert.load(save_digit_run(folder / "model", "logits", "two-mask"))
    evaluations = [Evaluation("1x1", "two-mask"), Evaluation("2x2", "detect")]
    header = describe("digits", defense, DIGITS, "test")
    write_rows(folder / "rows.jsonl", defense, Plan(evaluations, 3, scores=True), DIGITS.split("test"), header)
    shutil.rmtree(folder / "model")


def read_certified(folder: Path) -> None:
    read_rows(folder / "rows.jsonl")
    read_inputs([folder / "rows.jsonl"])
    verify_rows(folder / "rows.jsonl")


def make_packed(folder: Path) -> None:
    header = {"model": "m", "images": 1, "evaluations": [{"patch": "1x1", "rule": "two-mask"}]}
    for ending in ("gz", "xz"):
        record = Record("1x1", "two-mask", 0, 1, 1, True)
        make_rows(folder / f"{ending}.jsonl.{ending}", header, [record], seal=False)


def read_packed(folder: Path) -> None:
    for ending in ("gz", "xz"):
        read_rows(folder / f"{ending}.jsonl.{ending}", finished=False)


def make_attack(folder: Path) -> None:
    facts = {"model": "m", "weights_sha256": "0" * 64, "split": "test", "images": 2, "classes": ["a", "b"]}
    basic = {"patch": "1x1", "rule": "two-mask", "label": 1, "predicted": 1, "certified": False}
    lines = [{**basic, "image": image, "attacked": image, "placement": [0, 0, 1, 1]} for image in range(2)]
    make_rows(folder / "rows.jsonl", {"kind": ATTACK, **facts, "patch": "1x1", "rule": "two-mask"}, lines)


def seal_rows(folder: Path) -> None:
    meta = parsed(folder / "rows.meta.json")
    if isinstance(meta, dict) and "rows_sha256" in meta:
        meta["rows_sha256"] = sha256((folder / "rows.jsonl").read_bytes())
        (folder / "rows.meta.json").write_text(json.dumps(meta), encoding="utf-8")


def parsed(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (RecursionError, ValueError):
        return None


def make_recipe(folder: Path) -> None:
    source = Path(bagcert.__file__).parent / "recipes" / "digits.toml"
    (folder / "recipe.toml").write_bytes(source.read_bytes())


def make_pictures(folder: Path) -> None:
    for kind in ("PNG", "JPEG", "WEBP", "BMP", "GIF"):
        (folder / kind.lower()).write_bytes(file_of(photos()[12], kind))


def read_pictures(folder: Path) -> None:
    refused, framing = [], Framing.usual((32, 32), 3)
    for path in sorted(folder.iterdir()):
        try:
            frame_pictures([path], framing)
        except UsageError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def make_masks(folder: Path) -> None:
    np.save(folder / "masks.npy", np.eye(4, dtype=bool).reshape(1, 4, 4))


SCORES = "rows.scores/00000000.safetensors"
READERS = {
    "model": Reader(
        make_model,
        lambda folder: bagcert.load(folder / "model"),
        ("model/config.json", "model/weights.safetensors"),
        seal_model,
    ),
    "rows": Reader(make_certified, read_certified, ("rows.jsonl", "rows.meta.json", SCORES), seal_rows),
    "packed": Reader(make_packed, read_packed, ("gz.jsonl.gz", "xz.jsonl.xz")),
    "attack": Reader(
        make_attack, lambda folder: read_attack_rows(folder / "rows.jsonl"), ("rows.jsonl", "rows.meta.json"), seal_rows
    ),
    "recipe": Reader(make_recipe, lambda folder: load_recipe(str(folder / "recipe.toml")), ("recipe.toml",)),
    "pictures": Reader(make_pictures, read_pictures, ("png", "jpeg", "webp", "bmp", "gif")),
    "masks": Reader(make_masks, lambda folder: read_masks(folder / "masks.npy", (4, 4)), ("masks.npy",)),
}


@cache
def good(name: str) -> Path:
    """A folder with a good input, made once."""
    folder = Path(mkdtemp())
    READERS[name].make(folder)
    return folder


def answer(name: str, changed: dict[str, bytes], sealed: bool) -> str:
    """What the reader says of its good input with these files changed; "" if it reads it. All else is a bug."""
    reader, folder = READERS[name], Path(mkdtemp())
    try:
        shutil.copytree(good(name), folder, dirs_exist_ok=True)
        for file, content in changed.items():
            (folder / file).write_bytes(content)
        if sealed:
            reader.seal(folder)
        try:
            reader.read(folder)
        except UsageError as error:
            said = str(error).replace(str(folder), "FOLDER")
            assert said and "\n" not in said, "one line"
            return said
        return ""
    finally:
        shutil.rmtree(folder)
