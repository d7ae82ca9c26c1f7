"""Networks that learn the score maps of a teacher, beside the labels.

    bagcert train pair-cifar10 --final --seed 0 --out runs/pair-cifar10
    python -m studies distilled runs/small --teacher runs/pair-cifar10 --final --seed 0 --seed 1
    python -m studies frontier runs/small/field-7-seed-0 runs/small/field-5-seed-0 --split test --join runs/pair

The second command trains a network of receptive field 7 and one of 5 for each seed, all side by side: they share the
batches and what the teacher says about them, so the teacher is asked once. Each run is a folder that `bagcert` loads.
Without --final, the validation images are left out; but a teacher that was trained with --final has seen them.
Generated images lie in one folder per class (`python -m studies taught --help`).
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from bagcert.data import ArrayDataset, Arrays, ArraySource, Augmentation, Batch, load_dataset
from bagcert.data.base import derive_seed, training_positions
from bagcert.errors import UsageError, unknown_name
from bagcert.program import FAST, device_name, find_program, usual_device, versions
from bagcert.scorers.other_program import logits_by
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import load_scorer, rounded, save_scorer
from bagcert.stored_models import model_folder
from bagcert.training.losses import TwoMaskLoss
from studies.distilled.blended import UNTIL, blend
from studies.distilled.students import PATCH, Say, Student, in_words, rate_at, wanted_maps
from studies.taught.command import read_folder

BATCH = 500
NONE = "none"  # instead of a teacher
WARM_UP = 0.1  # of the time, while peers that nobody teaches know little
LINES = 40  # that say how far the networks are
SHARED = {"paths": 1, "shake": False, "positions": True, "position_rank": 32, "step": "logits"}
KERNELS = {9: (3, 3, 3, 1, 1, 1), 7: (3, 1, 3, 1, 1, 1), 5: (3, 1, 1, 1)}
SIZES = {  # by receptive field; narrow until the last 3x3 convolution
    "tiny": {9: (2,) * 7, 7: (2,) * 7, 5: (2,) * 5},
    "small": {7: (128,) * 3 + (336,) * 4, 5: (128,) + (368,) * 4},  # together at most three million parameters
    "large": {field: (192,) * (len(kernels) - 3) + (576,) * 4 for field, kernels in KERNELS.items()},
    "huge": {field: (224,) * (len(kernels) - 3) + (704,) * 4 for field, kernels in KERNELS.items()},
}


@dataclass(frozen=True)
class Clock:
    """How far a training is that takes at most so many steps and minutes; without minutes, the steps alone tell."""

    steps: int
    minutes: float | None
    begun: float

    def progress(self, step: int, warm: float) -> float:
        """From 0 to 1; `warm` is when the first two steps, which compile, were over."""
        if self.minutes is None:
            return step / self.steps
        return max(step / self.steps, (time.monotonic() - warm) / (self.begun + 60 * self.minutes - warm))


def distilled(
    out: Annotated[Path, typer.Argument(help="folder of the runs")],
    teacher: Annotated[str, typer.Option(help="a shipped model or a run folder; or 'none'")],
    seeds: Annotated[list[int] | None, typer.Option("--seed", help="of the networks; 0 if left out")] = None,
    fields: Annotated[list[int] | None, typer.Option("--field", help="9, 7 or 5; 7 and 5 if left out")] = None,
    sizes: Annotated[list[str] | None, typer.Option("--size", help="small, large or huge; repeat for several")] = None,
    steps: Annotated[int, typer.Option(help="of 500 images", min=1)] = 2600,
    minutes: Annotated[float | None, typer.Option(help="fewer steps if they would take longer")] = None,
    share: Annotated[float, typer.Option(help="of the loss that is about the wanted maps", min=0, max=1)] = 0.5,
    peers: Annotated[float, typer.Option(help="share of the maps that peers want in the end", min=0, max=1)] = 0.0,
    masked: Annotated[list[float] | None, typer.Option(help="share of the rest under two masks, by size; 0.75")] = None,
    generated: Annotated[Path | None, typer.Option(help="folder of generated images, one folder per class")] = None,
    generated_share: Annotated[float, typer.Option(help="of generated images in a batch", min=0, max=1)] = 0.4,
    blended: Annotated[float, typer.Option(help="share of images that are blended of two", min=0, max=0.9)] = 0.0,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train networks of several receptive fields on the score maps of a teacher, or on those of each other."""
    sizes, fields, seeds = sizes or ["small"], fields or [7, 5], seeds or [0]
    masked = masked or [0.75] * len(sizes)
    for size in sizes:
        if size not in SIZES:
            raise unknown_name("size", size, SIZES)
    if not set(fields) <= KERNELS.keys():
        raise UsageError(f"The value of --field must be 9, 7 or 5, but is {fields}. Repeat --field for several.")
    if len(masked) != len(sizes) or not all(0 <= each <= 1 for each in masked):
        raise UsageError(f"Repeat --masked for each --size, from 0 to 1, but it is {masked} for {sizes}.")
    clock, device = Clock(steps, minutes, time.monotonic()), usual_device()
    dataset = load_dataset("cifar10", data_dir)
    assert isinstance(dataset, ArrayDataset)
    others = read_folder(generated, dataset) if generated is not None else None
    sources = mixed(dataset, final, others, generated_share, 10 if "tiny" in sizes else BATCH)
    students = [
        Student.new(name_of(sizes, size, field, seed), network(size, field), dataset, seed, loss, device)
        for seed in seeds
        for size, loss in zip(sizes, (TwoMaskLoss(smoothing=0.1, weight=each) for each in masked), strict=True)
        for field in fields
        if field in SIZES[size]
    ]
    plan = Plan(share, peers, blended)
    say = said_by(teacher, device) if share and teacher != NONE else None
    images, per_batch = sources[0]
    taken = train(students, say, sources, clock, plan, derive_seed(*seeds), device)
    facts = {
        "classes": list(dataset.classes),
        "data": {"name": dataset.name, "digest": dataset.digest},
        "patch": PATCH,
        "rule": "two-mask",
        "teacher": Path(teacher).name,
        "seeds": seeds,  # side by side
        "steps": taken,
        "epochs": round(taken * per_batch / len(images), 2),  # of images that were not generated
        "share": share,
        "peers": peers,
        "blended": blended,
        "final": final,
        "seconds": round(time.monotonic() - clock.begun, 1),  # of all of them together
        "generated_images": len(others.labels) if others is not None else 0,
        "device": device_name(device),
        "versions": versions(),
    }
    for student in students:
        stored = rounded({name: value.cpu() for name, value in student.scorer.state_dict().items()})
        own = {"masked": student.loss.weight, "seed": student.seed}
        save_scorer(out / student.name, student.scorer.eval(), stored, facts | own)


def name_of(sizes: list[str], size: str, field: int, seed: int) -> str:
    """Of a run; the size is said if there are several."""
    return f"{size}-" * (len(sizes) > 1) + f"field-{field}-seed-{seed}"


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


def said_by(teacher: str, device: torch.device) -> Say:
    """The teacher's logits at all positions, in bfloat16 on a GPU: it proves nothing here.

    A teacher that looks at mirror images is asked without them. Half of the images in a batch are mirrored anyway.
    """
    scorer, _ = load_scorer(model_folder(teacher))
    if vars(scorer.config).get("mirrored"):
        once = replace(scorer.config, mirrored=False)  # type: ignore[type-var]
        weights, size = scorer.state_dict(), scorer.footprint.image_size
        scorer = once.build(size, (0.0,), (1.0,)).eval()
        scorer.load_state_dict(weights)
    return logits_by(find_program(FAST, device), scorer)


def stream(source: ArraySource, count: int, seed: int, device: torch.device) -> Iterator[Batch]:
    """Epoch after epoch, without end."""
    epoch = 0
    while True:
        order = derive_seed(seed, "epoch", epoch, len(source))
        yield from source.batches(count, device, epoch_seed=order, drop_last=True, augment=Augmentation())
        epoch += 1


@dataclass(frozen=True)
class Plan:
    """What students learn when."""

    share: float  # of the loss that is about maps
    peers: float  # share of those maps that come from the peers in the end; without a teacher, all do
    blended: float  # share of each batch that is blended, but for the end

    def to_blend(self, progress: float, batch: int) -> int:
        return round(self.blended * batch) if progress < UNTIL else 0

    def of_peers(self, progress: float, taught: bool) -> float:
        return self.peers * progress if taught else float(self.share > 0)


def train(
    students: list[Student],
    say: Say | None,
    sources: list[tuple[ArraySource, int]],
    clock: Clock,
    plan: Plan,
    seed: int,
    device: torch.device,
) -> int:
    """Train all students on the same batches, and return the number of steps. Students of one seed are peers."""
    streams = [stream(source, count, seed, device) for source, count in sources]
    groups = [[each for each in students if each.seed == own] for own in dict.fromkeys(each.seed for each in students)]
    step, told, progress, warm = 0, 0.0, 0.0, clock.begun
    while progress < 1:
        batches = [next(each) for each in streams]
        images = torch.cat([batch.images for batch in batches])
        labels = torch.cat([batch.labels for batch in batches])
        unknown = plan.to_blend(progress, len(images))
        images, labels = blend(images, unknown), labels[unknown:]
        said = say(images).float() if say else None
        rate, losses = rate_at(progress), []
        for group in groups:
            scores = [each.scores(images) for each in group]
            wanted = wanted_maps(said, scores, plan.of_peers(progress, say is not None))
            share = plan.share if say else plan.share * min(1, progress / WARM_UP)
            losses += [each.learn(own, labels, wanted, share, rate) for each, own in zip(group, scores, strict=True)]
        step += 1
        warm = time.monotonic() if step <= 2 else warm
        progress = clock.progress(step, warm)
        if progress >= min(1, told + 1 / LINES):
            told = progress
            took = time.monotonic() - clock.begun
            typer.echo(f"step {step}  {progress:.0%}  {took:.0f} s  {in_words(students, losses)}", err=True)
    return step
