"""Small networks that learn the score maps of a large model, beside the labels.

    python -m studies distilled runs/small --final --seed 0 --seed 1
    python -m studies frontier runs/small/field-7-seed-0 runs/small/field-5-seed-0 --split test --join runs/pair

The first command trains a network of receptive field 7 and one of 5 for each seed, all side by side: they share the
batches and what the teacher says about them, so the teacher is asked once. Each run is a folder that `bagcert` loads.
Without --final, the validation images are left out; but a shipped teacher has seen them. Generated images lie in one
folder per class (`python -m studies taught --help`).
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor

from bagcert.data import ArrayDataset, Arrays, ArraySource, Augmentation, Batch, load_dataset
from bagcert.data.base import derive_seed, training_positions
from bagcert.errors import UsageError, unknown_name
from bagcert.program import FAST, device_name, find_program, usual_device, versions
from bagcert.scorers.base import BuiltScorer
from bagcert.scorers.ensemble import mean_of
from bagcert.scorers.other_program import logits_by
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import load_scorer, rounded, save_scorer
from bagcert.stored_models import model_folder
from bagcert.tensors import Images
from bagcert.training.losses import TwoMaskLoss
from studies.distilled.students import PATCH, Say, Student, in_words, rate_at
from studies.distilled.thinned import Thinned, phases
from studies.taught.command import read_folder
from studies.taught.teachers import half_precision

BATCH = 500
LINES = 40  # that say how far the networks are
SHARED = {"paths": 1, "shake": False, "positions": True, "position_rank": 32, "step": "logits"}
KERNELS = {7: (3, 1, 3, 1, 1, 1), 5: (3, 1, 1, 1)}
SIZES = {  # by receptive field; narrow until the last 3x3 convolution
    "tiny": {7: (2,) * 7, 5: (2,) * 5},
    "small": {7: (128,) * 3 + (336,) * 4, 5: (128,) + (368,) * 4},  # together at most three million parameters
    "large": {7: (192,) * 3 + (640,) * 4, 5: (192,) + (640,) * 4},
}


@dataclass(frozen=True)
class Clock:
    """How far a training is that takes at most so many steps and minutes; without minutes, the steps alone tell."""

    steps: int
    minutes: float | None
    begun: float

    def progress(self, step: int, warm: float) -> float:
        """From 0 to 1; `warm` is when the first step, which compiles, was over."""
        if self.minutes is None:
            return step / self.steps
        return max(step / self.steps, (time.monotonic() - warm) / (self.begun + 60 * self.minutes - warm))


def distilled(
    out: Annotated[Path, typer.Argument(help="folder of the runs")],
    teacher: Annotated[str, typer.Option(help="a shipped model or a run folder")] = "cifar10",
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="of the networks; 0 if left out")] = None,
    fields: Annotated[list[int] | None, typer.Option("--field", help="7 or 5; both if left out")] = None,
    size: Annotated[str, typer.Option(help="of the networks: small or large; tiny is a rehearsal")] = "small",
    steps: Annotated[int, typer.Option(help="of 500 images", min=1)] = 2600,
    minutes: Annotated[float | None, typer.Option(help="fewer steps if they would take longer")] = None,
    share: Annotated[float, typer.Option(help="of the loss that is about the teacher's maps", min=0, max=1)] = 0.5,
    masked: Annotated[float, typer.Option(help="share of the rest that is under two masks", min=0, max=1)] = 0.75,
    generated: Annotated[Path | None, typer.Option(help="folder of generated images, one folder per class")] = None,
    generated_share: Annotated[float, typer.Option(help="of generated images in a batch", min=0, max=1)] = 0.4,
    thinned: Annotated[bool, typer.Option("--thinned", help="each step at every second row and column")] = False,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train networks of two receptive fields on the score maps of a teacher."""
    if size not in SIZES:
        raise unknown_name("size", size, SIZES)
    if fields and not set(fields) <= KERNELS.keys():
        raise UsageError(f"The value of --field must be 7 or 5, but is {fields}. Repeat --field for both.")
    clock, device, seeds = Clock(steps, minutes, time.monotonic()), usual_device(), seeds or [0]
    dataset = load_dataset("cifar10", data_dir)
    assert isinstance(dataset, ArrayDataset)
    others = read_folder(generated, dataset) if generated is not None else None
    sources = mixed(dataset, final, others, generated_share, 10 if size == "tiny" else BATCH)
    loss = TwoMaskLoss(smoothing=0.1, weight=masked)
    students = [
        Student.new(f"field-{field}-seed-{seed}", network(size, field), dataset, seed, loss, device, thinned)
        for seed in seeds
        for field in fields or [7, 5]
    ]
    say = said_by(teacher, device, thinned) if share else None
    looks = phases(device) if thinned else [()]
    taken = train(students, say, sources, clock, share, derive_seed(*seeds), device, looks)
    facts = {
        "classes": list(dataset.classes),
        "data": {"name": dataset.name, "digest": dataset.digest},
        "patch": PATCH,
        "rule": "two-mask",
        "teacher": teacher,
        "seeds": seeds,  # side by side
        "steps": taken,
        "share": share,
        "masked": masked,
        "thinned": thinned,
        "final": final,
        "seconds": round(time.monotonic() - clock.begun, 1),  # of all of them together
        "generated_images": len(others.labels) if others is not None else 0,
        "device": device_name(device),
        "versions": versions(),
    }
    for student in students:
        stored = rounded({name: value.cpu() for name, value in student.scorer.state_dict().items()})
        save_scorer(out / student.name, student.scorer.eval(), stored, facts)


def mixed(
    dataset: ArrayDataset, final: bool, generated: Arrays | None, share: float, batch: int
) -> list[tuple[ArraySource, int]]:
    """The sources of a batch, and how many of its images come from each: `share` of them are generated ones, if any."""
    positions = training_positions("train+validation" if final else "train", dataset.train.labels)
    count = round(share * batch) if generated is not None else 0
    own = (ArraySource(dataset.train, positions), batch - count)
    return [own] if generated is None else [own, (ArraySource(generated), count)]


def network(size: str, field: int) -> ResidualConfig:
    return ResidualConfig(width=SIZES[size][field], kernels=KERNELS[field], **SHARED)  # type: ignore[arg-type]


def said_by(teacher: str, device: torch.device, thinned: bool = False) -> Say:
    """The teacher's logits, in bfloat16 on a GPU: it proves nothing here.

    A teacher that looks at mirror images is asked without them. Half of the images in a batch are mirrored anyway.
    """
    scorer, _ = load_scorer(model_folder(teacher))
    if vars(scorer.config).get("mirrored"):
        once = replace(scorer.config, mirrored=False)  # type: ignore[type-var]
        weights, size = scorer.state_dict(), scorer.footprint.image_size
        scorer = once.build(size, (0.0,), (1.0,)).eval()
        scorer.load_state_dict(weights)
    return thinly_said(scorer, device) if thinned else logits_by(find_program(FAST, device), scorer)


def thinly_said(scorer: BuiltScorer, device: torch.device) -> Say:
    """The same at the positions of a phase alone, as the mean of all networks of an ensemble."""
    folded: Any = scorer.folded().to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    members = [Thinned(member).eval() for member in (folded, *getattr(folded, "others", ()))]
    if device.type == "cuda":
        for member in members:
            member.compile(dynamic=False)

    def say(images: Images, *at: Tensor) -> Tensor:
        with torch.no_grad():
            return mean_of([half_precision(member, images, *at) for member in members])

    return say


def stream(source: ArraySource, count: int, seed: int, device: torch.device) -> Iterator[Batch]:
    """Epoch after epoch, without end."""
    epoch = 0
    while True:
        order = derive_seed(seed, "epoch", epoch, len(source))
        yield from source.batches(count, device, epoch_seed=order, drop_last=True, augment=Augmentation())
        epoch += 1


def train(
    students: list[Student],
    say: Say | None,
    sources: list[tuple[ArraySource, int]],
    clock: Clock,
    share: float,
    seed: int,
    device: torch.device,
    looks: Sequence[tuple[Tensor, ...]],
) -> int:
    """Train all students on the same batches, and return the number of steps; they take the phases `looks` in turn."""
    streams = [stream(source, count, seed, device) for source, count in sources]
    step, told, progress, warm = 0, 0.0, 0.0, clock.begun
    while progress < 1:
        batches = [next(each) for each in streams]
        images = torch.cat([batch.images for batch in batches])
        labels = torch.cat([batch.labels for batch in batches])
        at = looks[step % len(looks)]
        said = say(images, *at).float() if say else None
        losses = [student.learn(images, labels, said, share, rate_at(progress), at) for student in students]
        step += 1
        warm = time.monotonic() if step == 1 else warm
        progress = clock.progress(step, warm)
        if progress >= min(1, told + 1 / LINES):
            told = progress
            took = time.monotonic() - clock.begun
            typer.echo(f"step {step}  {progress:.0%}  {took:.0f} s  {in_words(students, losses)}", err=True)
    return step
