"""Training under masks of pixels: the worst pair by its definition, whole runs, and every command after them."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

import bagcert
from bagcert.errors import UsageError
from bagcert.files import read_json, sha256
from bagcert.scorers.base import MASKED
from bagcert.scorers.covered import CoverConfig, CoverScorer
from bagcert.scorers.double_masking import DoubleMasking
from bagcert.threats import parse_threat
from bagcert.training import Recipe, RunOptions, Stopped, train
from bagcert.training.losses import CrossEntropyLoss, TwoMaskPixelsLoss, UnmaskedLoss, worst_masks
from bagcert.training.optimizers import AdamConfig
from bagcert.training.trainer import Objective
from tests.cli.calling import call
from tests.training.conftest import after_step, losses, rival_recipe


def normed() -> nn.Module:
    """A classifier whose batch norm and dropout behave otherwise in training."""
    torch.manual_seed(3)
    layers = nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.Tanh(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(6 * 16, 3)
    network = nn.Sequential(*layers)
    network(torch.rand(50, 1, 6, 6))
    return network.eval()


def scorer_of(**more: Any) -> DoubleMasking:
    built = CoverConfig(3, 1, masks=2, fill=(0.4,), at_once=4, **more).handed(normed()).build((6, 6), (0.5,), (0.3,))
    assert isinstance(built, CoverScorer)
    return built.trained_for(parse_threat("2x2", (6, 6)))


@pytest.fixture
def images() -> Tensor:
    return torch.rand(9, 1, 6, 6, generator=torch.Generator().manual_seed(0))


LABELS = torch.arange(9) % 3


def losses_under(scorer: DoubleMasking, image: Tensor, label: int) -> list[list[float]]:
    """The loss of one image under each pair of masks, one by one, as a defense would see it."""
    network = normed()  # in evaluation mode
    masks = scorer.hidden.masks(torch.arange(len(scorer.hidden)))
    with torch.no_grad():
        shown = [[torch.where(one | two, 0.4, image) for two in masks] for one in masks]
        return [
            [float(F.cross_entropy(network((each[None] - 0.5) / 0.3), torch.tensor([label]))) for each in row]
            for row in shown
        ]


def test_the_worst_pair_is_that_of_the_definition(images: Tensor) -> None:
    """First the mask with the largest loss alone, then the one with the largest loss beside it."""
    scorer = scorer_of()
    found = worst_masks(scorer, images, LABELS, tried=0)
    masks, pairs = scorer.hidden.masks(torch.arange(4)), set()
    for image, label, hidden in zip(images, LABELS.tolist(), found, strict=True):
        table = losses_under(scorer, image, label)
        first = max(range(4), key=lambda mask: table[mask][mask])
        second = max(range(4), key=lambda mask: table[first][mask])
        assert torch.equal(hidden, masks[first] | masks[second])
        pairs.add((first, second))
    assert len(pairs) > 2, "the images differ"


@pytest.mark.parametrize("tried", [1, 2, 3])
def test_of_random_masks_the_worst_is_picked(tried: int, images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer, asked = scorer_of(), []
    plain = CoverScorer.classify

    def classify(self: CoverScorer, shown: Tensor, masks: Tensor) -> Tensor:
        asked.append(masks.clone())
        return plain(self, shown, masks)

    monkeypatch.setattr(CoverScorer, "classify", classify)
    torch.manual_seed(1)
    found = worst_masks(scorer, images, LABELS, tried)
    assert len(asked) == 2 * tried
    with torch.no_grad():
        network = normed()
        seconds = torch.stack(asked[tried:])  # what the second round asked about, n b h w
        shown = [(torch.where(each[:, None], 0.4, images) - 0.5) / 0.3 for each in seconds]
        each = torch.stack([F.cross_entropy(network(every), LABELS, reduction="none") for every in shown])
    assert torch.equal(found, seconds[each.argmax(dim=0), torch.arange(9)])
    for round_ in (asked[:tried], asked[tried:]):
        different = torch.stack(round_, dim=1).flatten(2)  # b n hw
        assert any(len(rows.unique(dim=0)) == tried for rows in different), "no mask is tried twice"


def test_picking_leaves_the_network_as_it_was(images: Tensor) -> None:
    scorer = scorer_of()
    scorer.module[1].training = False  # type: ignore[index,union-attr]  # frozen
    modes = [module.training for module in scorer.modules()]
    before = {name: value.clone() for name, value in scorer.state_dict().items()}
    masks = worst_masks(scorer, images, LABELS, tried=2)
    assert not masks.requires_grad and [module.training for module in scorer.modules()] == modes
    for name, value in scorer.state_dict().items():
        assert torch.equal(value, before[name])


def test_what_each_loss_shows_the_network(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the image; two random masks; the worst ones. In training mode, with gradients."""
    scorer, shown = scorer_of(), []
    monkeypatch.setattr(scorer.module, "forward", lambda values: shown.append(values) or torch.zeros(9, 3))  # type: ignore[func-returns-value]
    monkeypatch.setattr("bagcert.training.losses.worst_masks", lambda *_: torch.ones(9, 6, 6, dtype=torch.bool))
    for loss in (UnmaskedLoss(), CrossEntropyLoss(), TwoMaskPixelsLoss()):
        assert loss.scores(scorer, images, LABELS).shape == (9, 3, 1, 1) and MASKED in loss.reads
    plain, random, worst = (values * 0.3 + 0.5 for values in shown)
    torch.testing.assert_close(plain, images)
    torch.testing.assert_close(worst, torch.full_like(images, 0.4))
    hidden = (random - images).abs() > 1e-6
    torch.testing.assert_close(random, torch.where(hidden, 0.4, images))
    assert all(16 <= int(each.sum()) <= 28 for each in hidden), "one or two masks of 4x4 of 6x6 pixels"


@pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf"
)  # what goes from graph to graph
def test_compiled_it_is_the_same(images: Tensor) -> None:
    """As on a GPU, but for the kernels: the search itself is left out of the graph, the network in it is not."""
    found = []
    for compiled in (False, True):
        objective = Objective(scorer_of(), TwoMaskPixelsLoss())
        if compiled:
            torch.compiler.reset()
            objective.compile(dynamic=False, backend="eager")
        torch.manual_seed(0)
        loss = objective(images, LABELS)
        loss.backward()
        found.append((loss.detach(), [value.grad for value in objective.parameters()]))
    torch.testing.assert_close(found[0], found[1])


COVER: dict[str, object] = {"name": "cover", "masks": 2, "at_once": 16, "fill": [0.5]}


def small() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    return nn.Sequential(*layers)


@pytest.mark.slow
@pytest.mark.usefixtures("pattern_data")
def test_a_run_learns_and_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = rival_recipe(COVER, loss="two-mask-pixels")
    plain = replace(plain, optimizer=AdamConfig(lr=0.02), schedule=replace(plain.schedule, epochs=6))

    def recipe() -> Recipe:  # with a network that no other run has trained
        return replace(plain, network=plain.network.handed(small()))

    train(recipe(), RunOptions(out=tmp_path / "whole"))
    with monkeypatch.context() as patch:
        after_step(patch, 9, lambda trainer: os.kill(os.getpid(), signal.SIGINT))
        with pytest.raises(Stopped):
            train(recipe(), RunOptions(out=tmp_path / "parts"))
    train(recipe(), RunOptions(out=tmp_path / "parts", resume=True))
    whole, parts = ((tmp_path / name / "weights.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts and losses(tmp_path / "parts") == losses(tmp_path / "whole")
    steps = [loss for _, loss in losses(tmp_path / "whole")]
    assert sum(steps[-5:]) < 0.8 * sum(steps[:5])
    card = read_json(tmp_path / "whole" / "config.json")
    assert card["recipe"]["loss"] == {"name": "two-mask-pixels", "tried": 0} and card["rule"] == "unanimous"


CODE = """
import torch
from torch import nn

def small(classes=2):
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, classes))

def large():
    return small(1000)
"""
TRAIN = (
    "train cover --data pictures --network masked_classifiers:small --patch 2x2 --out run --set network.masks=2 "
    "--set network.at_once=16 --set schedule.epochs=12 --set optimizer.lr=0.01 --set data.crop_padding=0"
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures whose upper or lower half is bright, but for noise."""
    monkeypatch.chdir(tmp_path)
    Path("masked_classifiers.py").write_text(CODE, encoding="utf-8")
    draw = np.random.default_rng(0)
    for part, count in (("train", 40), ("val", 20)):
        for name in ("lower", "upper"):
            Path("pictures", part, name).mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(0, 140, (12, 12, 3), dtype=np.uint8)
                pixels[slice(6, 12) if name == "lower" else slice(0, 6)] += 90
                Image.fromarray(pixels).save(f"pictures/{part}/{name}/{number}.png")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_from_a_folder_and_foreign_weights_to_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path.cwd()))
    import masked_classifiers  # type: ignore[import-not-found]

    torch.manual_seed(0)
    torch.save(masked_classifiers.small().state_dict(), "start.pth")
    assert call(monkeypatch, *TRAIN.split(), "--weights", "start.pth") == 0
    assert "training at 12x12 with recipe cover against 2x2 patches" in capsys.readouterr().out
    card = read_json(Path("run/config.json"))
    assert card["weights_from"] == {"name": "start.pth", "sha256": sha256(Path("start.pth").read_bytes())}
    assert card["scorer"]["kind"] == "cover" and card["recipe"]["network"]["masks"] == 2

    words = "certify run --network masked_classifiers:small --scores --out rows.jsonl"
    assert call(monkeypatch, *words.split()) == 0
    assert call(monkeypatch, "verify", "rows.jsonl") == 0
    words = "attack run --network masked_classifiers:small --limit 2 --steps 2"
    assert call(monkeypatch, *words.split()) == 0

    defense = bagcert.load("run", network=masked_classifiers.small())
    untrained = masked_classifiers.small().eval()
    untrained.load_state_dict(torch.load("start.pth"))
    scorer = defense.scorer
    assert isinstance(scorer, CoverScorer)
    mean, std = (each.flatten().tolist() for each in (scorer.normalize.mean, scorer.normalize.std))
    before = bagcert.cover(untrained, 12, defense.classes, "2x2", masks=2, mean=mean, std=std, at_once=16)
    paths = sorted(Path("pictures/val").glob("*/*.png"))
    labels = torch.tensor([defense.classes.index(path.parent.name) for path in paths])
    proven = []
    for each in (before, defense):
        found = each.certify(paths)
        proven.append(int((found.certified & (found.predicted == labels)).sum()))
    assert proven[1] > proven[0] + 5 and proven[1] > 30, proven


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "--network masked_classifiers:large",
            "must score 2 classes, but scores 1000. Hand over one with a new last layer",
        ),
        ("--weights none.pth", "none.pth holds no weights that are tensors alone"),
        ("--set loss.name=two-mask", "does not read logits of masked images, which this network returns in training"),
        ("--set loss.tried=-1", "loss.tried must lie in 0..1,024, but is -1"),
        ("--set network.given=3", "No mask holds all of the patch of 2x2 pixels at row 0, column 0"),
        ("--patch 13x13", "does not fit into"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *TRAIN.split(), *words.split()) == 2
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1 and not Path("run").exists()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("train cover --data pictures", "a network of your own, which no file holds. Hand it over"),
        ("train digits --weights a.pth", "Weights of a file are for a network of your own. Add --network"),
    ],
)
def test_a_network_must_be_named(
    words: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *words.split(), "--out", "run") == 2
    assert told in capsys.readouterr().err and not Path("run").exists()


def test_other_networks_do_not_take_the_loss() -> None:
    from bagcert.scorers.residual import ResidualConfig
    from bagcert.training.trainer import fitted_loss

    built = ResidualConfig(classes=3, channels=1, width=4, kernels=(1,)).build((8, 8), (0.5,), (0.3,))
    with pytest.raises(UsageError, match="The loss 'two-mask-pixels' does not read scores of regions"):
        fitted_loss(built, TwoMaskPixelsLoss(), "1x1")
