"""The fixed cut of a validation part from the training data."""

import numpy as np
import torch
from torch import Tensor

from bagcert.data.base import SPLITS
from bagcert.errors import unknown_name

VALIDATION_SEED = 2021  # the year of the paper; changing it changes every validation split
VALIDATION_SHARE = 10  # one image in ten: 5,000 of CIFAR-10's 50,000


def cut(labels: Tensor, share: int, seed: int) -> Tensor:
    """True for one image in `share` of every class (rounded down, at least one), the same on every machine.

    Each image gets a 64-bit key and the lowest keys of a class are taken. The keys are the raw output of PCG64, which
    numpy promises never to change, unlike the methods of its `Generator` or torch's own numbers.
    """
    keys = np.random.PCG64(seed).random_raw(len(labels))
    taken = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels.numpy()):
        members = np.flatnonzero(labels.numpy() == label)
        ranked = members[np.argsort(keys[members], kind="stable")]
        taken[ranked[: max(1, len(members) // share)]] = True
    return torch.from_numpy(taken)


def training_positions(split: str, labels: Tensor) -> Tensor:
    """Where in the training data the images of a split lie, in rising order; every split but "test"."""
    held_out = cut(labels, VALIDATION_SHARE, VALIDATION_SEED)
    chosen = {"train": ~held_out, "validation": held_out, "train+validation": torch.ones_like(held_out)}
    return chosen[split].nonzero()[:, 0]


def check_split(name: str) -> None:
    if name not in SPLITS:
        raise unknown_name("a split", name, SPLITS)
