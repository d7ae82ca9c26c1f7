"""Look for inputs that a reader fails on, or answers as it answered none before; see the package."""

import hashlib
import random
import re
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Annotated

import typer

from tests.fuzz.changes import changed
from tests.fuzz.readers import READERS, answer, good
from tests.fuzz.test_readers import CORPUS, kept_inputs

LARGEST = 2**12  # bytes of an input that is kept


def shape(said: str) -> str:
    """An answer without its numbers and quoted values."""
    return re.sub(r"'[^']*'|\"[^\"]*\"|[0-9][0-9.e+-]*|\[.*\]|\{.*\}|\(.*\)", "_", said)[:40]


def keep(name: str, file: str, content: bytes) -> Path:
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file.replace('/', '+')}--{hashlib.sha256(content).hexdigest()[:12]}"
    path.write_bytes(content)
    return path


def main(
    minutes: Annotated[float, typer.Option(help="how long to look")] = 1.0,
    reader: Annotated[list[str] | None, typer.Option(help="these only")] = None,
    seed: int = 0,
) -> None:
    warnings.simplefilter("ignore")
    draw, failed, tried = random.Random(seed), 0, 0
    names = reader or list(READERS)
    known = {
        name: {""} | {shape(answer(name, dict([each]), sealed=True)) for each in kept_inputs(name)} for name in names
    }
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        name, tried = names[tried % len(names)], tried + 1
        file = draw.choice(READERS[name].files)
        stock = [content for kept, content in kept_inputs(name) if kept == file] if draw.random() < 0.3 else []
        content = changed(file, draw.choice([*stock, (good(name) / file).read_bytes()]), draw)
        try:
            said = shape(answer(name, {file: content}, sealed=True))
        except Exception as error:
            where = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
            failed += 1
            if where[-1] not in known[name]:
                known[name].add(where[-1])
                ours = [each for each in where if "bagcert" in each]
                print(f"{keep(name, file, content)}: {type(error).__name__}: {error} at {ours[-1:]}", flush=True)
            continue
        if said not in known[name] and len(content) <= LARGEST:
            known[name].add(said)
            print(f"{keep(name, file, content).name}: {said}", flush=True)
    print(f"{tried} inputs, {failed} failed, {sum(map(len, known.values()))} answers known")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    typer.run(main)
