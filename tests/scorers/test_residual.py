from dataclasses import replace

import pytest
import torch
from torch import nn

from bagcert.errors import UsageError
from bagcert.scorers import CIFAR_KERNELS, IMAGENET_KERNELS, ResidualConfig, ResidualScorer
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.threats import parse_threat

IMAGENET_WIDTHS = (64, 64, 64, 128, 128, 256, 256, 512, 512)  # App. A.1.2
IMAGENET_STRIDES = (2, 1, 2, 1, 1, 1, 1, 1)


def small(
    kernels: tuple[int, ...], strides: tuple[int, ...] = (), paths: int = 2, step: str = "logits"
) -> ResidualConfig:
    return ResidualConfig(classes=4, width=6, kernels=kernels, strides=strides, paths=paths, shake=False, step=step)


@pytest.mark.parametrize(("field", "millions"), [(5, 28), (7, 38), (9, 47), (11, 57), (13, 66)])
def test_paper_cifar_networks(field: int, millions: int) -> None:
    scorer = ResidualScorer(ResidualConfig(kernels=CIFAR_KERNELS[field]), (32, 32))
    assert scorer.footprint.receptive_field == (field, field)
    assert scorer.footprint.grid == (32, 32)
    # Table 1 counts all weights
    assert round(sum(weight.numel() for weight in scorer.parameters()) / 1e6) == millions


@pytest.mark.parametrize("field", IMAGENET_KERNELS)
def test_paper_imagenet_networks(field: int) -> None:
    kernels = IMAGENET_KERNELS[field]
    config = ResidualConfig(
        classes=1000, width=IMAGENET_WIDTHS, kernels=kernels, strides=IMAGENET_STRIDES, paths=1, shake=False
    )
    scorer = ResidualScorer(config, (224, 224)).eval()
    assert scorer.footprint.receptive_field == (field, field)
    assert scorer.footprint.grid == (56, 56)
    assert scorer.scores(torch.rand(1, 3, 224, 224)).shape == (1, 1000, 56, 56)


NETWORKS = [
    (small((3, 1)), (9, 11)),
    (small((1, 3, 3), paths=1), (12, 10)),
    (small((3, 3), strides=(2, 1)), (13, 12)),
    (small((3, 1, 3), strides=(2, 1, 2), paths=1), (16, 19)),
    (small((1, 5), strides=(2, 1)), (12, 12)),
    (ResidualConfig(classes=3, width=(4, 6, 8), kernels=(3, 3), strides=(1, 2), shake=False, step="logits"), (10, 14)),
    (replace(small((3, 1)), positions=True), (9, 11)),
    (replace(small((1, 3), strides=(2, 1), paths=1), positions=True), (13, 12)),
    (EnsembleConfig(3, 3, 4, (3, 3), (1, 2), paths=1, shake=False, positions=True, members=2), (10, 14)),
    (EnsembleConfig(3, 3, 4, (3, 3), paths=1, shake=False, positions=True, members=2, mirrored=True), (10, 13)),
    (EnsembleConfig(3, 3, 4, (5, 1), paths=2, shake=False, members=1, mirrored=True), (11, 12)),
]


@pytest.mark.parametrize(("config", "size"), NETWORKS)
def test_patches_change_exactly_the_footprint(config: ResidualConfig, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    scorer = config.build(size, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.2)).double().eval()
    for norm in scorer.modules():
        if isinstance(norm, nn.BatchNorm2d):  # so that no unit is dead: every path that exists shows
            norm.bias.data.fill_(3.0)
    regions = scorer.footprint.regions(parse_threat("2x3", size))
    image = torch.rand(1, 3, *size, dtype=torch.float64)
    clean = scorer.logits(image)
    assert clean.shape[2:] == scorer.footprint.grid
    for index in range(len(regions)):
        row, column, height, width = regions.placement(index)
        patched = image.clone()
        patched[:, :, row : row + height, column : column + width] = torch.rand(1, 3, height, width)
        changed = (scorer.logits(patched) != clean).any(dim=1)[0]
        reach = regions.masks(torch.tensor([index]))[0]
        assert not (changed & ~reach).any(), "a score outside R(l) moved"
        assert torch.equal(changed, reach), "R(l) is larger than what a patch reaches"


@pytest.mark.parametrize(
    ("kernels", "strides", "complete"), [((3, 1, 3, 1), (), 2), ((3, 1), (1, 2), 1), ((1, 1), (), -1), ((3,), (), 0)]
)
def test_positions_are_added_where_the_grid_is_complete(
    kernels: tuple[int, ...], strides: tuple[int, ...], complete: int
) -> None:
    config = replace(small(kernels, strides=strides), width=tuple(range(5, 6 + len(kernels))), positions=True)
    scorer = ResidualScorer(config, (8, 10)).eval()
    assert scorer.positions is not None
    assert scorer.positions.shape == (5 + complete + 1, *scorer.footprint.grid)
    gray = torch.full((1, 3, 8, 10), 0.5)
    scorer.positions.data.zero_()
    before = scorer.logits(gray)
    scorer.positions.data[:, 2, 3] = 1.0
    moved = (scorer.logits(gray) != before).any(dim=1)[0]
    assert moved.nonzero().tolist() == [[2, 3]]  # nowhere else: no later layer looks beyond its position


@torch.no_grad()
def test_positions_of_few_numbers_are_one_matrix_of_them() -> None:
    """The same scores as the network with all its position features written out, and fewer weights."""
    torch.manual_seed(0)
    config = replace(small((3, 1, 1)), positions=True)
    ranked = ResidualScorer(replace(config, position_rank=2), (8, 10)).eval()
    assert ranked.positions is not None and ranked.position_matrix is not None
    ranked.positions.data.normal_()
    full = ResidualScorer(config, (8, 10)).eval()
    weights = ranked.state_dict()
    matrix = weights.pop("position_matrix")
    assert full.positions is not None and matrix.shape == (full.positions.shape[0], 2)
    full.load_state_dict({**weights, "positions": torch.einsum("fr,rij->fij", matrix, ranked.positions)})
    assert sum(map(torch.numel, ranked.parameters())) < sum(map(torch.numel, full.parameters()))
    images = torch.rand(2, 3, 8, 10)
    torch.testing.assert_close(ranked.logits(images), full.logits(images))
    gray = torch.full((1, 3, 8, 10), 0.5)
    before = ranked.logits(gray)
    ranked.positions.data[:, 2, 3] += 1.0
    moved = (ranked.logits(gray) != before).any(dim=1)[0]
    assert moved.nonzero().tolist() == [[2, 3]]


def test_position_rank_needs_positions() -> None:
    with pytest.raises(UsageError, match=r"network\.position_rank needs network\.positions = true, but it is false"):
        replace(small((3,)), position_rank=2)


@pytest.mark.parametrize("step", ["heaviside", "sigmoid", "softmax", "logits"])
def test_forward_is_soft_and_scores_are_integers(step: str) -> None:
    scorer = ResidualScorer(small((3, 1), step=step), (8, 8)).eval()
    images = torch.rand(2, 3, 8, 8)
    scores, soft = scorer.scores(images), scorer(images)
    assert scores.dtype == torch.int32 and soft.dtype == torch.float32
    assert soft.requires_grad and not scores.requires_grad
    torch.testing.assert_close(scores / scorer.step.unit, soft.detach(), atol=0.5 / scorer.step.unit, rtol=0)


def test_scores_refuse_training_mode() -> None:
    scorer = ResidualScorer(small((3,)), (8, 8))
    with pytest.raises(UsageError, match=r"The scorer is in training mode\. Call scorer\.eval\(\) first\."):
        scorer.scores(torch.rand(1, 3, 8, 8))


def test_normalization_is_inside() -> None:
    torch.manual_seed(0)
    plain = ResidualScorer(small((3,)), (8, 8)).eval()
    torch.manual_seed(0)
    shifted = ResidualScorer(small((3,)), (8, 8), mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)).eval()
    images = torch.rand(1, 3, 8, 8)
    means, stds = torch.tensor([0.5, 0.4, 0.3]).reshape(3, 1, 1), torch.tensor([0.2, 0.3, 0.4]).reshape(3, 1, 1)
    torch.testing.assert_close(shifted.logits(images), plain.logits((images - means) / stds))


def test_two_paths_are_averaged_in_evaluation_and_shaken_in_training() -> None:
    config = ResidualConfig(classes=4, width=6, kernels=(3, 1), step="logits")
    scorer = ResidualScorer(config, (8, 8)).eval()
    images = torch.rand(4, 3, 8, 8)
    block, features = scorer.blocks[0], scorer.stem(scorer.normalize(images))
    expected = torch.relu(features + (block.first(features) + block.second(features)) / 2)  # type: ignore[operator]
    torch.testing.assert_close(block(features), expected)
    assert torch.equal(scorer(images), scorer(images))
    scorer.train()
    torch.manual_seed(1)
    first = scorer(images)
    assert not torch.equal(first, scorer(images))
    torch.manual_seed(1)
    assert torch.equal(first, scorer(images))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kernels": (3, 2)}, r"The value of network.kernels must be odd numbers, one for each block, but is \[3, 2\]"),
        ({"kernels": ()}, "The value of network.kernels must be odd numbers"),
        ({"strides": (2,)}, r"The value of network.strides must be 8 numbers of at least 1, but is \[2\]"),
        ({"width": (64, 64)}, r"The value of network.width must be 9 numbers, or one, but is \[64, 64\]"),
        ({"paths": 3}, "The value of network.paths must be 1 or 2, but is 3"),
        ({"paths": 1}, r"Shake-shake needs network.paths = 2, but it is 1\. Set network.shake=false\."),
        ({"width": 0}, "The network must have at least 2 classes, 1 channel and width 1"),
        ({"step": "vote"}, "Unknown score step 'vote'"),
    ],
)
def test_impossible_networks_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ResidualConfig(**changes)  # type: ignore[arg-type]


def test_mean_of_a_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(UsageError, match="Mean and std must have 3 numbers, one per channel, or 1, but have 2"):
        ResidualScorer(small((3,)), (8, 8), mean=(0.5, 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("positions", [False, True])
def test_compiled_training_step_equals_eager(positions: bool) -> None:
    config = ResidualConfig(classes=4, width=6, kernels=(3, 1), paths=1, shake=False, positions=positions)
    torch.manual_seed(0)
    scorer = ResidualScorer(config, (8, 8))
    images = torch.rand(4, 3, 8, 8)
    eager = scorer(images).detach()
    torch.testing.assert_close(torch.compile(scorer, backend="aot_eager", fullgraph=True)(images).detach(), eager)
