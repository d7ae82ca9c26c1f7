import hashlib

import pytest
import torch
from torch import Tensor

from bagcert.data import load_dataset
from bagcert.data.base import cut, training_positions
from bagcert.errors import UsageError

CIFAR_LIKE = torch.arange(50_000) % 10


def sha256_of(positions: Tensor) -> str:
    return hashlib.sha256(positions.numpy().astype("<i8").tobytes()).hexdigest()


def test_validation_takes_a_tenth_of_every_class_and_nothing_of_train() -> None:
    train, validation = (training_positions(name, CIFAR_LIKE) for name in ("train", "validation"))
    assert CIFAR_LIKE[validation].bincount().tolist() == [500] * 10
    assert CIFAR_LIKE[train].bincount().tolist() == [4500] * 10
    assert torch.equal(torch.cat([train, validation]).sort().values, torch.arange(50_000))
    assert torch.equal(training_positions("train+validation", CIFAR_LIKE), torch.arange(50_000))


def test_validation_is_pinned() -> None:
    """The same images on every machine and with every version: models were chosen on them."""
    assert (
        sha256_of(training_positions("validation", CIFAR_LIKE))
        == "26a9a6421cb7919b9d836b5c7d9c72dde3a8de0e486100d5f07d73b68c20c1e4"
    )


def test_uneven_and_tiny_classes_keep_their_share() -> None:
    labels = torch.tensor([0] * 39 + [1] * 4 + [2] * 10)
    assert labels[cut(labels, 10, seed=0)].bincount().tolist() == [3, 1, 1]


def test_the_seed_decides() -> None:
    assert not torch.equal(cut(CIFAR_LIKE, 10, seed=1), cut(CIFAR_LIKE, 10, seed=2))


def test_unknown_split_is_named() -> None:
    with pytest.raises(UsageError, match=r"Unknown split 'validate'\. Did you mean 'validation'\? Known: "):
        load_dataset("digits").split("validate")
