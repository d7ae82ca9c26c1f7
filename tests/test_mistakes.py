"""A caller's mistakes do not pass: each is refused in one line that says what to do."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import bagcert
from bagcert.defense import Defense
from bagcert.errors import UsageError
from bagcert.rows.header import fitting_dataset
from bagcert.scorers.base import Scorer
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.scorers.steps import score_step
from bagcert.scorers.weights import CONFIG
from bagcert.stored_models import shipped_models
from bagcert.threats import Footprint
from tests.cli.calling import call

CLASSES = ("cat", "dog", "ship")
STEP = bagcert.AttackSettings(steps=1)


@pytest.fixture(scope="module")
def defense() -> Defense:
    torch.manual_seed(0)
    config = ResidualConfig(classes=3, width=4, kernels=(1,), paths=1, shake=False)
    return Defense.build(ResidualScorer(config, (8, 8)).eval(), "every-region", "2x2", CLASSES)


IMAGES = torch.full((2, 3, 8, 8), 0.5)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.tensor([0, 3]), r"Labels must lie in 0\.\.2, but these are in 0\.\.3\. Number the classes"),
        (torch.tensor([-1, 0]), r"Labels must lie in 0\.\.2, but these are in -1\.\.0\. Number the classes"),
        (torch.tensor([0.0, 1.0]), r"whole numbers, but are torch\.float32\. Convert them by labels\.long\(\)"),
        (torch.tensor([True, False]), r"whole numbers, but are torch\.bool\. Convert them by labels\.long\(\)"),
        (torch.zeros(2, 3), r"Give one label for each of 2 images; these have the shape \[2, 3\]"),
        ([0], r"Give one label for each of 2 images; these have the shape \[1\]"),
        (["cat", "dog"], r"Labels must be class numbers, but are list\. Give one per image\."),
    ],
)
def test_labels_that_are_no_classes(defense: Defense, labels: Any, words: str) -> None:
    """An image with such a label would count as wrong, and as unbroken by the attack."""
    with pytest.raises(UsageError, match=words):
        defense.attack(IMAGES, labels, STEP)


def test_labels_may_be_a_list(defense: Defense) -> None:
    listed, tensor = (defense.attack(IMAGES, labels, STEP) for labels in ([0, 2], torch.tensor([0, 2])))
    assert listed.runs == tensor.runs and torch.equal(listed.attacked, tensor.attacked)


class Guessing(Scorer):
    """A scorer that does not say how many classes it has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.step, self.footprint = score_step("logits"), Footprint.identity((8, 8))
        self.training = False

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        return images


VOTES = torch.zeros(2, 3, 8, 8, dtype=torch.int32)
LAST = VOTES.permute(0, 2, 3, 1)
SWITCHED = r"but \[2, 8, 8, 3\] looks like \[images, rows, columns, classes\]\. Use scores\.permute\(0, 3, 1, 2\)"

MISTAKES: dict[str, tuple[Callable[[Defense], Any], str]] = {
    "two names for three classes": (
        lambda defense: Defense.build(defense.scorer, "two-mask", "2x2", ("cat", "dog")),
        "The network scores 3 classes, but has 2 class names. Give one name per class",
    ),
    "two names for three scores": (
        lambda _: Defense.build(Guessing(), "two-mask", "2x2", ("cat", "dog")).certify(IMAGES),
        "The network scores 3 classes, but has 2 class names. Give one name per class",
    ),
    "a text for names": (
        lambda defense: Defense.build(defense.scorer, "two-mask", "2x2", "cat"),
        r"Class names must be a list of texts, but are 'cat'\. Write them like",
    ),
    "numbers for names": (
        lambda defense: Defense.build(defense.scorer, "two-mask", "2x2", [0, 1, 2]),  # type: ignore[list-item]
        r"Class names must be a list of texts, but are \[0, 1, 2\]\. Write them like",
    ),
    "a network for a scorer": (
        lambda _: Defense.build(nn.Conv2d(3, 3, 3), "two-mask", "2x2", CLASSES),  # type: ignore[arg-type]
        r"A defense needs a scorer, but this is Conv2d\. Use bagcert\.defend",
    ),
    "batches of nothing": (
        lambda defense: Defense.build(defense.scorer, "two-mask", "2x2", CLASSES, batch_size=0),
        "The batch size must be a whole number of at least 1, but is 0",
    ),
    "no images": (lambda defense: defense.certify(IMAGES[:0]), r"The batch has no images: .*Give at least one"),
    "no images to attack": (lambda defense: defense.attack(IMAGES[:0], []), r"The batch has no images: .*Give at"),
    "a pixel is NaN": (
        lambda defense: defense.certify(torch.where(torch.arange(8) == 3, torch.nan, IMAGES)),
        r"Pixels must lie in 0\.\.1, but some are NaN\. Check",
    ),
    "a pixel is infinite": (
        lambda defense: defense.certify(IMAGES * torch.inf),
        r"Pixels must lie in 0\.\.1, but these are in inf\.\.inf\. Divide",
    ),
    "a number for settings": (
        lambda defense: defense.attack(IMAGES, [0, 0], 5),  # type: ignore[arg-type]
        r"Settings must be AttackSettings, but are 5\. Write AttackSettings\(steps=100\)",
    ),
    "classes last": (lambda _: bagcert.certify_scores(LAST, "2x2"), SWITCHED + ", or give image_size"),
    "classes last, of a known size": (
        lambda _: bagcert.certify_scores(LAST, "2x2", stride=2, image_size=16),
        SWITCHED + r"\.$",
    ),
    "classes last, of a known footprint": (
        lambda defense: bagcert.certified_size(LAST, footprint=defense.scorer.footprint),
        SWITCHED + r"\.$",
    ),
    "a number for a footprint": (
        lambda _: bagcert.certify_scores(VOTES, "2x2", footprint=7),  # type: ignore[arg-type]
        r"A footprint must be a Footprint, but is int\. Make one by Footprint\.of_layers",
    ),
    "scores of a defense without its footprint": (
        lambda defense: bagcert.certify_scores(defense.scores(IMAGES), "2x2"),
        r"do not say what they see\. Pass footprint=defense\.scorer\.footprint, or use defense\.certify\(images\)\.",
    ),
    "scores of a defense with other bounds": (
        lambda defense: bagcert.certified_size(
            defense.scores(IMAGES), bounds=(0, 5), footprint=defense.scorer.footprint
        ),
        r"have bounds and a guard band already\. Leave out bounds, uncertain and slack",
    ),
    "scores of a defense with a slack": (
        lambda defense: bagcert.certify_scores(
            defense.scores(IMAGES), "2x2", slack=1, footprint=defense.scorer.footprint
        ),
        r"have bounds and a guard band already\. Leave out bounds, uncertain and slack",
    ),
    "a text for flags": (
        lambda _: bagcert.certify_scores(VOTES, "2x2", uncertain="x"),  # type: ignore[arg-type]
        "Flags must be a tensor or an array of numbers, but are str",
    ),
    "a list for a rule": (
        lambda _: bagcert.certify_scores(VOTES, "2x2", rule=["two-mask"]),  # type: ignore[arg-type]
        r"A rule must be a name like 'two-mask' or an object like TwoMask\(\), but is list\. Known names",
    ),
    "a class for a rule": (
        lambda _: bagcert.certify_scores(VOTES, "2x2", rule=bagcert.TwoMask),  # type: ignore[arg-type]
        r"or an object like TwoMask\(\), but is the class TwoMask\. Known names",
    ),
    "a function for a network": (
        lambda _: bagcert.wrap(lambda images: images, 8),  # type: ignore[arg-type]
        r"A network must be a torch\.nn\.Module, but is function\. Give the network itself",
    ),
    "a text for channels": (
        lambda _: bagcert.wrap(nn.Conv2d(3, 3, 1), 8, channels="3"),  # type: ignore[arg-type]
        "Image size and channels must be whole numbers of at least 1, but are .8, 8. and '3'",
    ),
    "nothing for a score step": (
        lambda _: bagcert.wrap(nn.Conv2d(3, 3, 1), 8, step=None),  # type: ignore[arg-type]
        "Unknown score step 'None'. Known: heaviside",
    ),
    "a network in training mode": (
        lambda _: bagcert.defend(nn.Conv2d(3, 3, 1), 8),
        r"The network is in training mode\. Call network\.eval\(\) first\.",
    ),
    "a network of gray images": (
        lambda _: bagcert.defend(nn.Conv2d(1, 3, 1).eval(), 8),
        r"The network fails on \[2, 3, 8, 8\] \(.*\)\. Give image_size and channels as it takes them\.",
    ),
    "a text for a size": (
        lambda _: bagcert.defend(nn.Conv2d(3, 3, 1).eval(), "32"),  # type: ignore[arg-type]
        r"A size must be a whole number of pixels, or rows and columns, but is '32'\. Give 7",
    ),
    "a network of one class": (
        lambda _: bagcert.defend(nn.Conv2d(3, 1, 1).eval(), 8, patch="2x2"),
        r"The network scores 1 class\. Give it at least 2: a single class has no rival\.",
    ),
    "one name for two classes": (
        lambda _: bagcert.defend(nn.Conv2d(3, 3, 1).eval(), 8, ["cat", "dog", "cat"], "2x2"),
        r"Class names must differ, but 'cat' names several\. Give each class its own\.",
    ),
    "a number for a model": (
        lambda _: bagcert.load(5),  # type: ignore[arg-type]
        "A model must be a name or a folder, but is 5. Known: cifar10",
    ),
    "a number for a device": (
        lambda _: bagcert.load("cifar10-small", 0.5),  # type: ignore[arg-type]
        "Unknown device '0.5'. Write cpu, cuda or cuda:0",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused(defense: Defense, name: str) -> None:
    mistake, words = MISTAKES[name]
    with pytest.raises(UsageError, match=words) as refused:
        mistake(defense)
    assert "\n" not in str(refused.value)


def test_scores_of_a_defense_are_certified_as_they_are() -> None:
    """With the bounds that they know: those of logits, not those of votes."""
    defense = Defense.build(Guessing(), "every-region", "2x2", CLASSES)
    scores, footprint = defense.scores(torch.rand(2, 3, 8, 8)), defense.scorer.footprint
    found = bagcert.certify_scores(scores, "2x2", rule="every-region", footprint=footprint)
    wanted = defense.certify_integers(scores)
    assert torch.equal(found.predicted, wanted.predicted) and torch.equal(found.certified, wanted.certified)
    assert found.lead is not None and wanted.lead is not None and torch.equal(found.lead, wanted.lead)
    plain = bagcert.certified_size(scores.values, bounds=scores.bounds, footprint=footprint)
    assert torch.equal(bagcert.certified_size(scores, footprint=footprint), plain)


def test_as_many_classes_as_rows_pass_with_their_image_size() -> None:
    """Eight classes on a grid of 8x3 look like three classes on a grid of 8x8."""
    assert len(bagcert.certify_scores(LAST, "2x2", image_size=(8, 3)).predicted) == 2
    assert len(bagcert.certify_scores(np.zeros((2, 8, 8, 8)), "2x2").predicted) == 2


# A change of the card of a shipped model, and how it is refused.
CARDS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "too few names": (lambda card: card["classes"].pop(), "scores 10 classes, but has 9 class names"),
    "a text for names": (lambda card: card.update(classes="abcdefghij"), "Class names must be a list of texts"),
    "a name that moves the cursor": (
        lambda card: card["classes"].__setitem__(3, "cat\x1b[2Aproven"),
        r"^The class name 'cat\\x1b\[2Aproven' holds control characters, which a terminal would obey",
    ),
    "numbers for names": (lambda card: card.update(classes=list(range(10))), "Class names must be a list of texts"),
    "a patch larger than the image": (
        lambda card: card.update(patch="99x99"),
        "The patch 99x99 does not fit into an image of 32x32. Choose one from 1x1",
    ),
    "a number for a rule": (lambda card: card.update(rule=7), "A rule must be a name like 'two-mask'"),
    "a gigantic width": (lambda card: card["scorer"]["network"].update(width=10**9), "must lie in 1..16,384, but is"),
    "a large width": (lambda card: card["scorer"]["network"].update(width=2**14), "are not those of the network"),
    "a width beyond 64 bits": (lambda card: card["scorer"]["network"].update(width=10**30), "must lie in 1..16,384"),
    "a billion channels": (lambda card: card["scorer"]["network"].update(channels=10**9), "must be at most 16,384"),
    "a billion classes": (lambda card: card["scorer"]["network"].update(classes=10**9), "must be at most 65,536"),
    "a gigantic kernel": (
        lambda card: card["scorer"]["network"].update(kernels=[10**9 + 1] * 8),
        "must lie in 1..99, but is",
    ),
    "a billion members": (
        lambda card: (
            card["scorer"].update(
                kind="ensemble", network={"name": "ensemble", **card["scorer"]["network"], "members": 10**9}
            )
            or card["scorer"]["network"].update(mirrored=False)
        ),
        "network.members must be at most 99",
    ),
    "gigantic images": (lambda card: card["scorer"].update(image_size=[10**7, 10**7]), "must be 1 to 4096 pixels"),
    "images without pixels": (lambda card: card["scorer"].update(image_size=[0, -1]), "must be 1 to 4096 pixels"),
}


@pytest.mark.parametrize("data", [5, [], None, {}])
def test_a_card_that_names_no_data_asks_for_it(defense: Defense, data: object) -> None:
    with pytest.raises(UsageError, match="The card of this model names no data"):
        fitting_dataset(None, replace(defense, card={"data": data}), None)


@pytest.mark.parametrize("name", CARDS)
def test_a_nonsensical_card_is_refused(tmp_path: Path, name: str) -> None:
    shutil.copytree(shipped_models()["cifar10-small"], tmp_path / "model")
    path = tmp_path / "model" / CONFIG
    card = json.loads(path.read_text(encoding="utf-8"))
    change, words = CARDS[name]
    change(card)
    path.write_text(json.dumps(card), encoding="utf-8")
    with pytest.raises(UsageError, match=words) as refused:
        bagcert.load(tmp_path / "model")
    assert "\n" not in str(refused.value)


def test_models_of_a_folder_without_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "models", str(tmp_path)) == 2
    assert "holds no finished run with config.json and weights.safetensors." in capsys.readouterr().err


def test_models_shows_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its card has accuracies on the validation split, and no command."""
    shutil.copytree(shipped_models()["cifar10-small"], tmp_path / "run")
    path = tmp_path / "run" / CONFIG
    card = json.loads(path.read_text(encoding="utf-8"))
    for key in ("test", "command", "beside"):
        del card[key]
    path.write_text(json.dumps(card), encoding="utf-8")
    assert call(monkeypatch, "models", str(tmp_path / "run")) == 0
    shown = capsys.readouterr().out
    assert "validation" in shown and f"{100 * card['validation']['certified']:.2f}" in shown
    del card["patch"]
    path.write_text(json.dumps(card), encoding="utf-8")
    assert call(monkeypatch, "models", str(tmp_path / "run")) == 2
    assert "is missing a value or has a wrong one ('patch'). Copy the model again." in capsys.readouterr().err
