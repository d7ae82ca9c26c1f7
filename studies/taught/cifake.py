"""Is a folder of generated images the one that we trained with? CIFAKE without what resembles a CIFAR-10 test image.

    python -m studies.taught.cifake FOLDER      (FOLDER/airplane/4799.jpg, FOLDER/automobile/3547 (2).jpg, ...)

`cifake.json` names the public source, the images that are left out, and a digest of the others: the SHA-256 of theirs,
one after the other in the order of their numbers, of each class.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from bagcert.errors import UsageError
from bagcert.files import read_json, sha256
from studies.common.commands import call

FACTS = Path(__file__).with_suffix(".json")


def number_of(path: Path) -> int:
    """The names are `1000.jpg` or `1000 (2).jpg`, where 2 stands for the class."""
    head = path.stem.split()[0]
    return int(head) if head.isdecimal() else -1


def digest(paths: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for path in sorted(paths, key=number_of):
        found.update(bytes.fromhex(sha256(path.read_bytes())))
    return found.hexdigest()


def cifake(folder: Annotated[Path, typer.Argument(help="generated images, one folder per class")]) -> None:
    """Check names and contents of all generated images."""
    facts = read_json(FACTS)
    for name, wanted in facts["classes"].items():
        paths = list((folder / name).glob("*.jpg"))
        left_out = set(wanted["left_out"])
        extra = [path for path in paths if number_of(path) in left_out]
        if extra:
            raise UsageError(
                f"{len(extra)} images of {name} resemble test images: {extra[0]}. Remove what {FACTS} names."
            )
        if len(paths) != wanted["images"] or digest(paths) != wanted["sha256"]:
            raise UsageError(
                f"The {len(paths)} images in {folder / name} are not the {wanted['images']} that {FACTS.name} means. "
                f"Take them from {facts['source']}."
            )
    typer.echo(f"{sum(each['images'] for each in facts['classes'].values()):,} images, as in {FACTS.name}")


if __name__ == "__main__":
    call(cifake)
