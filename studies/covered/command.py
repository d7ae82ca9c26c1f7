"""Trained ImageNet networks under masks: what they prove about real photographs, and what that costs.

    python -m studies covered check FOLDER                (are these the 2,000 photographs behind our numbers?)
    python -m studies covered run FOLDER                  (all networks, patches and masks, on a GPU)
    python -m studies covered run FOLDER --minutes 5      (what fits; the same command goes on)
    python -m studies covered run FOLDER --networks lite0 --masks 3 --images 4 --out /tmp/results   (on a CPU)
    python -m studies covered times FOLDER --networks lite0 --images 4                              (on a CPU)
    python -m studies covered page                        (fill docs/imagenet.md)

`python -m studies covered train FOLDER` is in `trained.py`.

FOLDER holds val/CLASS/*: the first two photographs of each class of ImageNet's validation set, by name, cut to 224x224.
Every evaluation is one rows file with recovery (`unanimous`) and detection at several thresholds (`detect`). Each time
is that of 32 photographs in one program: to classify, to certify and to detect.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import nn

import bagcert
from bagcert.attacks import AttackSettings
from bagcert.attacks.attack import PIXELS_AT_ONCE
from bagcert.data import FolderSettings, load_dataset
from bagcert.data.arrays import ArraySource
from bagcert.data.folder import FolderDataset
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.program import usual_device
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.threats import Patch
from studies.common.commands import choose
from studies.common.results import RESULTS, provenance, write_results
from studies.common.sharing import deadline_of, report
from studies.common.subject import Subject
from studies.covered import networks
from studies.covered.networks import MEAN, SIDE, STD, WEIGHTS

PATCHES = {"32x32": "2 %", "23x23": "1 %", "39x39": "3 %"}
RULES = ["unanimous", "detect", "detect:256", "detect:512", "detect:1024", "detect:2048"]  # 256 units are a logit of 1
TIMED = 32  # photographs
ATTACKED = 200
SETTINGS = AttackSettings(steps=20, step_size=0.1)
PHOTOGRAPHS = Path(__file__).with_name("photographs.txt")


def run(
    photographs: Annotated[Path, typer.Argument(help="a folder with val/CLASS/*")],
    chosen: Annotated[list[str] | None, typer.Option("--networks", help=f"of {', '.join(WEIGHTS)}")] = None,
    patches: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(PATCHES)}")] = None,
    masks: Annotated[list[int] | None, typer.Option(help="masks along each axis; default: 6 and 3")] = None,
    images: Annotated[int, typer.Option(help="the first ones: one of each class, then the second of each")] = 2000,
    attack: Annotated[bool, typer.Option("--attack", help="attack certified photographs, by the first patch")] = False,
    minutes: Annotated[float | None, typer.Option(help="stop in time; the same command goes on")] = None,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16")] = "float32",
    compiled: Annotated[bool, typer.Option("--compile", help="by torch.compile")] = False,
    at_once: Annotated[int | None, typer.Option(help="masked images per pass; default: what fits")] = None,
    out: Annotated[Path, typer.Option(help="the folder of stored rows")] = RESULTS,
    work: Annotated[Path, typer.Option(help="models and rows that are not complete")] = Path("runs/covered"),
) -> None:
    """Certify, time and attack every network, patch and number of masks."""
    deadline, left, jobs, wanted = deadline_of(minutes), [], 0, choose("network", chosen, WEIGHTS)
    dataset = read_photographs(photographs)
    for name in wanted:
        built: dict[int, Defense] = {}
        for patch, count in product(patches or list(PATCHES), masks or [6, 3]):
            jobs += 1
            label = f"{name}-k{count}-{patch}"
            target = out / "covered" / f"{label}.jsonl.gz"
            aimed = attack and jobs == 1 and not attacked_path(target).exists()
            if target.exists() and not aimed:
                continue
            if time.monotonic() > deadline:
                left.append(label)
                continue
            if count not in built:
                built[count] = covered(name, count, dataset, work, dtype, compiled, at_once)
            defense = built[count].against(patch)
            subject = Subject(defense, dataset.split("test"), describe(label, defense, dataset, "test"))
            subject.certify([Evaluation(patch, rule) for rule in RULES], images, work / "rows", target)
            write_times(defense, dataset, out / "covered", label, min(TIMED, images))
            if aimed:
                attack_certified(subject, patch, dataset, target, work)
            print(f"{label} is done", flush=True)
    report(jobs, left)


def read_photographs(folder: Path) -> FolderDataset:
    dataset = load_dataset(str(folder), None, FolderSettings(Framing((SIDE, SIDE)), resident=True))
    assert isinstance(dataset, FolderDataset)
    return dataset


def covered(
    name: str, masks: int, dataset: FolderDataset, work: Path, dtype: str, compiled: bool, at_once: int | None
) -> Defense:
    """The network under so many masks."""
    kind = f"{usual_device().type}-{dtype}{'-compiled' if compiled else ''}"
    settings = {"masks": masks, "framing": dataset.framing, "at_once": at_once, "dtype": dtype, "compiled": compiled}
    build: Callable[[], nn.Module] = getattr(networks, name)
    return covered_once(work / f"{name}-k{masks}-{kind}", build, SIDE, dataset.classes, "2%", **settings)


def covered_once(
    folder: Path, build: Callable[[], nn.Module], side: int, classes: Sequence[str], patch: Patch, **settings: Any
) -> Defense:
    """The network under masks: its weights become safetensors with a card, and are loaded from there."""
    device = usual_device()
    if not folder.exists():
        bagcert.cover(build().to(device), side, classes, patch, mean=MEAN, std=STD, **settings).save(folder)
    return replace(load(folder, device, build().to(device)), batch_size=96)


def attacked_path(rows: Path) -> Path:
    return rows.with_name(rows.name.replace(".jsonl", "-attack.jsonl"))


def attack_certified(subject: Subject, patch: str, dataset: FolderDataset, rows: Path, work: Path) -> None:
    """Attack the first certified photographs: none may change its class."""
    PIXELS_AT_ONCE["cuda"] = 2**19  # these networks are small
    found = read_rows(rows)
    recovered = found.results[Evaluation(patch, "unanimous")]
    proven = (recovered.certified & (recovered.predicted == found.labels)).nonzero().flatten()[:ATTACKED]
    source = ArraySource(dataset.decoded("val"), proven)
    header = {**subject.header, "photographs": proven.tolist()}
    Subject(subject.defense, source, header).attack(
        Evaluation(patch, "unanimous"), len(proven), SETTINGS, work / "rows", attacked_path(rows)
    )


def times(
    photographs: Annotated[Path, typer.Argument(help="a folder with val/CLASS/*")],
    chosen: Annotated[list[str] | None, typer.Option("--networks", help=f"of {', '.join(WEIGHTS)}")] = None,
    patches: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(PATCHES)}")] = None,
    masks: Annotated[list[int] | None, typer.Option(help="masks along each axis; default: 6 and 3")] = None,
    images: Annotated[int, typer.Option(help="the first ones")] = TIMED,
    at_once: Annotated[int | None, typer.Option(help="masked images per pass; default: what fits")] = None,
    out: Annotated[Path, typer.Option(help="the folder of stored results")] = RESULTS,
    work: Annotated[Path, typer.Option(help="models")] = Path("runs/covered"),
) -> None:
    """Time networks without certifying all photographs: for a CPU."""
    wanted, dataset = choose("network", chosen, WEIGHTS), read_photographs(photographs)
    for name, count in product(wanted, masks or [6, 3]):
        defense = covered(name, count, dataset, work, "float32", False, at_once)
        for patch in patches or list(PATCHES):
            write_times(defense.against(patch), dataset, out / "covered", f"{name}-k{count}-{patch}", images)


def write_times(defense: Defense, dataset: FolderDataset, folder: Path, label: str, images: int) -> None:
    """Seconds and passes per photograph: to classify, to certify, and to detect. On a CPU, processor time."""
    batch = next(dataset.split("test").batches(images, defense.device))
    recover, detect = defense.against(rule="unanimous"), defense.against(rule="detect")
    tasks: dict[str, Callable[[], Any]] = {
        "classify": lambda: recover.predict(batch.images),
        "certify": lambda: recover.certify(batch.images, exact=False),
        "detect": lambda: detect.certify(batch.images, exact=False),
    }
    kind = defense.device.type
    clock = time.process_time if kind == "cpu" else time.perf_counter
    found: dict[str, Any] = {}
    for task, call in tasks.items():
        passes = [0]
        for each in (recover, detect):
            count_passes(each, passes)
        begun = clock()
        call()
        if kind == "cuda":
            torch.cuda.synchronize()
        found[task] = {"seconds": (clock() - begun) / len(batch.images), "passes": passes[0] / len(batch.images)}
    head = provenance("studies covered run", [label], defense.device)
    facts = {"program": str(defense.program), "photographs": len(batch.images)}
    write_results(folder / f"{label}-time-{kind}.json", head, {**facts, **found})


def count_passes(defense: Defense, passes: list[int]) -> None:
    """Count the masked images of every pass from now on, in the place of an earlier counter."""
    scorer = defense.scorer
    plain = type(scorer).classify  # type: ignore[attr-defined]

    def classify(images: torch.Tensor, masks: torch.Tensor) -> torch.Tensor:
        passes[0] += len(images)
        return plain(scorer, images, masks)  # type: ignore[no-any-return]

    scorer.__dict__["classify"] = classify


def check(photographs: Annotated[Path, typer.Argument(help="a folder with val/CLASS/*")]) -> None:
    """Compare a folder with the names and SHA-256 of the 2,000 photographs."""
    listed = (line.split("  ") for line in PHOTOGRAPHS.read_text(encoding="utf-8").splitlines())
    known = {name: digest for digest, name in listed}
    found = {path.relative_to(photographs).as_posix(): path for path in sorted(photographs.glob("val/*/*"))}
    for name in sorted(known.keys() ^ found.keys()):
        raise UsageError(f"{name} is {'missing' if name in known else 'none of the 2,000 photographs'}.")
    for name, path in found.items():
        if hashlib.sha256(path.read_bytes()).hexdigest() != known[name]:
            raise UsageError(f"{name} has other bytes than the photograph behind our numbers.")
    print(f"all {len(found):,} photographs are there")
