"""Where the Adversarial Robustness Toolbox differs from us, and why ours is the right answer.

Each test shows one of its bugs in version 1.20.1; when it fails, the bug may be mended, and our exception can go.
"""

import importlib.util
from importlib import metadata
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

art = pytest.importorskip(
    "art.estimators.certification.derandomized_smoothing",
    reason="the outside check needs the Adversarial Robustness Toolbox: make peers",
)
ablators = pytest.importorskip("art.estimators.certification.derandomized_smoothing.ablators.pytorch")

pytestmark = pytest.mark.slow


class Counting(nn.Module):
    """A network that says class 0 and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return torch.eye(10)[:1].expand(len(images), 10) * 9


def smoothed(kind: str, size: tuple[int, int] = (16, 16), algorithm: str = "levine2020") -> Any:
    return art.PyTorchDeRandomizedSmoothing(
        model=Counting(),
        loss=nn.CrossEntropyLoss(),
        input_shape=(3, *size),
        nb_classes=10,
        ablation_size=4,
        ablation_type=kind,
        algorithm=algorithm,
        threshold=0.3,
        logits=True,
        clip_values=(0, 1),
        device_type="cpu",
        verbose=False,
    )


def ablator(kind: str, algorithm: str) -> Any:
    channels = 6 if algorithm == "levine2020" else 3
    shape = (channels, 16, 16)
    common = {"ablation_size": 4, "channels_first": True, "mode": "CNN", "to_reshape": False, "original_shape": shape}
    common |= {"output_shape": shape, "algorithm": algorithm, "device_type": "cpu"}
    return ablators.BlockAblatorPyTorch(**common) if kind == "block" else ablators.ColumnAblatorPyTorch(**common)


def counts(*votes: tuple[int, int]) -> Tensor:
    """One image's votes, given by class."""
    found = torch.zeros(1, 10, dtype=torch.int64)
    for label, number in votes:
        found[0, label] = number
    return found


def test_it_needs_a_package_that_it_does_not_ask_for() -> None:
    asked = [words.split()[0].lower() for words in metadata.requires("adversarial-robustness-toolbox") or []]
    assert not any(words.startswith("packaging") for words in asked)
    files = metadata.files("adversarial-robustness-toolbox") or []
    sources = (file.read_text(encoding="utf-8") for file in files if file.suffix == ".py" and "pytorch" in file.name)
    assert any("from packaging" in text for text in sources)


def test_on_a_cpu_it_overwrites_the_images_of_its_caller() -> None:
    """Of salman2021 with a CNN: all later columns are then blank. Levine's way copies, and so does ours."""
    for algorithm, spoiled in (("salman2021", True), ("levine2020", False)):
        images = np.ones((2, 3, 16, 16), dtype=np.float32)
        ablator("column", algorithm).forward(images, column_pos=5)
        assert bool((images == 0).any()) == spoiled


@pytest.mark.parametrize(("kind", "reach"), [("column", 5 + 4 - 1), ("block", (5 + 4 - 1) ** 2)])
def test_blocks_are_not_credited_with_ties(kind: str, reach: int) -> None:
    """A tie that the lower index wins is certified, yet blocks do not count it among the right and certified ones."""
    tied = counts((3, 200), (7, 200 - 2 * reach))
    certified, right, _ = ablator(kind, "levine2020").certify(tied, size_to_certify=5, label=torch.tensor([3]))
    assert certified.tolist() == [True]
    assert right.tolist() == [kind == "column"]


def test_rows_of_wide_images_are_swept_by_their_width() -> None:
    classifier = smoothed("row", (8, 12))
    images, labels = np.zeros((1, 3, 8, 12), dtype=np.float32), np.zeros(1, dtype=np.int64)
    votes = classifier.predict(images)
    assert classifier.model.calls == 8 == votes[0, 0], "predict is right: one ablation for each row"
    classifier.model.calls = 0
    classifier.eval_and_certify(images, labels, size_to_certify=1, verbose=False)
    assert classifier.model.calls == 12, "one for each column"


def test_plain_arrays_are_not_taken() -> None:
    with pytest.raises(UnboundLocalError):
        smoothed("column")._predict_classifier(np.zeros((1, 6, 16, 16), dtype=np.float32), 1, False)


def test_training_draws_the_first_position_twice_as_often() -> None:
    """Positions are drawn from 0 to the width, both ends included; the last is the first again."""
    images = torch.rand(1, 3, 16, 16)
    first, last, other = (
        ablator("column", "levine2020").forward(images.clone(), column_pos=place) for place in (0, 16, 5)
    )
    assert torch.equal(first, last) and not torch.equal(first, other)


def test_ties_for_the_second_place_may_be_certified_wrongly() -> None:
    """Class 3 leads classes 0 and 5 by just what an attack can take: class 0 then wins the tie by its index.

    Its certificate asks about one of the tied classes only, and which one it is told is not defined. These are the
    votes that the column model of this folder gives test image 429.
    """
    votes = counts((3, 19), (0, 3), (5, 3))
    certified, _, predicted = ablator("column", "levine2020").certify(votes, size_to_certify=5, label=torch.tensor([3]))
    assert certified.tolist() == [True] and predicted.tolist() == [3]
    attacked = counts((3, 19 - 8), (0, 3 + 8), (5, 3))  # a patch of 5x5 meets 8 columns of 4
    _, _, predicted = ablator("column", "levine2020").certify(attacked, size_to_certify=5, label=torch.tensor([3]))
    assert predicted.tolist() == [0], "a certificate that does not hold"


def test_networks_other_than_transformers_need_timm() -> None:
    if importlib.util.find_spec("timm") is not None:
        pytest.skip("timm is there")
    with pytest.raises(ValueError, match="Model type not recognized"):
        smoothed("column", algorithm="salman2021")
