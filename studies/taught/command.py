"""Networks for the rule two-mask that learn from labels and from teachers, with or without generated images.

    python -m studies taught runs/taught --final --generated cifake/train
    python -m studies frontier runs/taught/field-7 runs/taught/field-5 --mirrored --split test --join runs/pair

The first command trains four teachers, one after the other (6.6 minutes beside three other trainings on one H200), then
a network of each receptive field. Without --final, the validation images are left out of the training. Generated images
lie in one folder per class, as JPEG or PNG of the same size as CIFAR-10's; CIFAKE's are meant (Bird and Lotfi, 2024),
without those that resemble a test image: `python -m studies.taught.cifake FOLDER` checks them.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from PIL import Image
from torch import Tensor

from bagcert.data import ArrayDataset, Arrays, ArraySource, load_dataset
from bagcert.data.base import training_positions
from bagcert.data.folder import list_images
from bagcert.errors import UsageError
from bagcert.files import pack_tensors, read_tensors, write_atomically
from bagcert.program import device_name, usual_device, versions
from bagcert.scorers.residual import ResidualConfig
from bagcert.scorers.weights import rounded, save_scorer
from studies.taught.students import Part, train_student
from studies.taught.teachers import Size, teach

BATCH = 500
SHARE = 0.4  # of generated images in a batch
KERNELS = {5: (3, 1, 1, 1, 1, 1), 7: (3, 1, 3, 1, 1, 1, 1, 1), 9: (3, 1, 3, 1, 3, 1, 1, 1, 1, 1)}
TINY = Size(widths=(4, 4, 4, 4), epochs=1, batch=8)


def taught(
    out: Annotated[Path, typer.Argument(help="folder of the runs")],
    fields: Annotated[list[int] | None, typer.Option("--field", help="5, 7 or 9; both 7 and 5 if left out")] = None,
    generated: Annotated[Path | None, typer.Option(help="folder of generated images, one folder per class")] = None,
    steps: Annotated[int, typer.Option(help="of each network", min=1)] = 4200,
    narrow: Annotated[int, typer.Option(help="width while the receptive field grows", min=1)] = 192,
    wide: Annotated[int, typer.Option(help="width after that", min=1)] = 576,
    seed: Annotated[int, typer.Option(help="of the networks; teachers have their own")] = 0,
    final: Annotated[bool, typer.Option("--final", help="train on the validation images too")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="a rehearsal, whose numbers mean nothing")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="where data sets are kept")] = None,
) -> None:
    """Train teachers, unless OUT holds what they said, and a network of each receptive field."""
    chosen = fields or [7, 5]
    if not set(chosen) <= KERNELS.keys():
        raise UsageError(f"The value of --field must be 5, 7 or 9, but is {chosen}.")
    device = usual_device()
    dataset = load_dataset("cifar10", data_dir)
    assert isinstance(dataset, ArrayDataset)
    others = read_folder(generated, dataset) if generated is not None else None
    said, said_of_others = lessons(out, dataset, others, TINY if tiny else Size(), device)
    positions = training_positions("train+validation" if final else "train", dataset.train.labels)
    batch = 10 if tiny else BATCH
    count = round(SHARE * batch) if others is not None else 0
    parts = [Part.of(ArraySource(dataset.train, positions), said[positions], batch - count)]
    if others is not None:
        parts.append(Part.of(ArraySource(others), said_of_others, count))
    for field in chosen:
        config = network(field, narrow, wide)
        scorer = train_student(config, dataset, parts, steps, seed, device)
        facts = {
            "classes": list(dataset.classes),
            "data": {"name": dataset.name, "digest": dataset.digest},
            "patch": "5x5",
            "rule": "two-mask",
            "seed": seed,
            "steps": steps,
            "final": final,
            "generated_images": len(others.labels) if others is not None else 0,
            "device": device_name(device),
            "versions": versions(),
        }
        stored = rounded({name: value.cpu() for name, value in scorer.state_dict().items()})
        save_scorer(out / f"field-{field}", scorer, stored, facts)


def network(field: int, narrow: int, wide: int) -> ResidualConfig:
    """Narrow until the last 3x3 convolution, wide from there on."""
    kernels = KERNELS[field]
    start = max(number for number, kernel in enumerate(kernels) if kernel == 3) + 1
    width = (narrow,) * start + (wide,) * (len(kernels) + 1 - start)
    return ResidualConfig(width=width, kernels=kernels, paths=1, shake=False, positions=True, step="logits")


def read_folder(folder: Path, dataset: ArrayDataset) -> Arrays:
    listing = list_images(folder, dataset.classes)
    pixels = np.stack([np.asarray(Image.open(path).convert("RGB")) for path in listing.paths])
    return Arrays(torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous(), listing.labels)


def lessons(
    out: Path, dataset: ArrayDataset, others: Arrays | None, size: Size, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What the teachers say about the training images and the others, from OUT if it is there."""
    path = out / "teachers.safetensors"
    if not path.exists():
        shown = others.images if others is not None else dataset.train.images[:0]
        said, of_others = teach(dataset, shown, size, device)
        write_atomically(path, pack_tensors({"train": said, "generated": of_others}, {}))
    stored, _ = read_tensors(path)
    wanted = len(others.labels) if others is not None else 0
    if (len(stored["train"]), len(stored["generated"])) != (len(dataset.train.labels), wanted):
        raise UsageError(f"{path} is about other images. Choose another folder for the runs.")
    return stored["train"], stored["generated"]
