"""A window alone gives the scores of the whole attacked image."""

import pytest
import torch
from torch import Tensor, nn

import bagcert
from bagcert.attacks.placements import Placements
from bagcert.attacks.windows import Windows
from bagcert.scorers import Scorer
from bagcert.scorers.ablation import AblationConfig, AblationScorer
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.residual import ResidualConfig, ResidualScorer
from bagcert.threats import RectangleThreat, Threat, parse_threat

pytestmark = pytest.mark.slow

SIZE = (18, 20)


def network(
    step: str = "logits",
    stride: int = 1,
    kernels: tuple[int, ...] = (3, 1, 3),
    positions: bool = False,
    rank: int = 0,
    members: int = 1,
    mirrored: bool = False,
) -> ResidualScorer:
    """Receptive field 7, random weights, and norms whose shift makes padding differ from any real feature."""
    torch.manual_seed(0)
    strides = (stride, *[1] * (len(kernels) - 1))
    config = ResidualConfig(4, 3, 16, kernels, strides, 2, False, positions, position_rank=rank, step=step)
    if members > 1 or mirrored:
        config = EnsembleConfig(**vars(config), members=members, mirrored=mirrored)
    scorer = config.build(SIZE, (0.0,), (1.0,)).eval()
    for module in scorer.modules():
        if isinstance(module, ResidualScorer) and module.positions is not None:
            nn.init.normal_(module.positions)  # a window shown at another place would have other scores
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.bias)
    return scorer.to(memory_format=torch.channels_last)  # type: ignore[no-any-return, call-overload]


def attacked_everywhere(scorer: Scorer, threat: Threat) -> tuple[Windows, Tensor, Tensor, Tensor]:
    """One random patch at each placement of a threat of one shape: windows, their pixels, whole images, clean ones."""
    places = Placements.of(threat, scorer.footprint, every=True)
    index = torch.arange(len(places.regions))
    boxes = places.regions.placements
    windows = Windows.around(scorer, places.pixels(index, SIZE), places.regions.masks(index), boxes)
    generator = torch.Generator().manual_seed(1)
    clean = torch.rand(1, 3, *SIZE, generator=generator).expand(len(index), -1, -1, -1)
    noise = torch.rand(len(index), 3, *windows.size, generator=generator)
    pixels = torch.where(windows.painted, noise, windows.cut(clean))
    return windows, pixels, windows.paste(pixels, clean), clean


THREATS = ["5x5", "1x1", "1x20", "18x2", "7x11"]


@pytest.mark.parametrize(
    ("positions", "rank", "members", "mirrored"),
    [
        (False, 0, 1, False),
        (True, 3, 1, False),
        (True, 0, 1, True),
        (True, 2, 2, True),
    ],
)
@pytest.mark.parametrize("patch", THREATS)
@torch.no_grad()
def test_spliced_scores_are_those_of_the_whole_image(
    patch: str, positions: bool, rank: int, members: int, mirrored: bool
) -> None:
    """In float64 to the last digits, so the window is exact; in float32 the integers differ by rounding: one unit."""
    scorer = network(positions=positions, rank=rank, members=members, mirrored=mirrored)
    windows, pixels, whole, clean = attacked_everywhere(scorer, parse_threat(patch, SIZE))
    assert windows.cropped
    fixed = scorer.step.fixed(windows.logits(scorer, pixels))
    spliced = windows.splice(fixed, scorer.scores(clean))
    assert int((spliced - scorer.scores(whole)).abs().max()) <= 1
    exact = scorer.double()
    pixels, whole, clean = pixels.double(), whole.double(), clean.double()
    spliced = windows.splice(windows.logits(exact, pixels), exact.logits(clean))
    torch.testing.assert_close(spliced, exact.logits(whole), rtol=0, atol=1e-12)


@torch.no_grad()
def test_regions_of_any_form() -> None:
    scorer = network()
    masks = torch.zeros(2, *SIZE, dtype=torch.bool)
    masks[0, 3:7, 4] = masks[0, 3, 4:7] = True  # two hooks with boxes of one size, the second at the border
    masks[1, 14:18, 17] = masks[1, 17, 17:20] = True
    windows, pixels, whole, clean = attacked_everywhere(scorer, parse_threat(masks, SIZE))
    assert windows.size == (4 + 12, 3 + 12)
    spliced = windows.splice(scorer.scores(pixels), scorer.scores(clean))
    assert int((spliced - scorer.scores(whole)).abs().max()) <= 1
    assert torch.equal((whole != clean).any(dim=1), masks)


@pytest.mark.parametrize("kept", [(18, 4), (5, 20), (7, 6)], ids=["column", "row", "block"])
@pytest.mark.parametrize("shape", ["2x7", "hooks"])
@torch.no_grad()
def test_only_ablations_that_the_patch_reaches_are_run(kept: tuple[int, int], shape: str) -> None:
    torch.manual_seed(0)
    config = AblationConfig(classes=4, kept=kept, theta=0.0, width=2, blocks=(1,))
    scorer = AblationScorer(config, SIZE).eval()
    masks = torch.zeros(2, *SIZE, dtype=torch.bool)  # of one size, and yet they reach more or fewer ablations
    masks[0, 3:7, 4] = masks[0, 3, 4:7] = masks[1, 14:18, 17:20] = True
    threat = parse_threat("2x7" if shape == "2x7" else masks, SIZE)
    windows, pixels, whole, clean = attacked_everywhere(scorer, threat)
    kept_images = torch.tensor([0, len(whole) - 1])  # the first and the last: the last wraps around
    windows, pixels, whole, clean = windows.select(kept_images), *(part[kept_images] for part in (pixels, whole, clean))
    most = int(windows.reached.flatten(1).sum(dim=1).max())
    shown: list[int] = []
    scorer.classifier.register_forward_pre_hook(lambda module, inputs: shown.append(len(inputs[0])))
    logits = windows.logits(scorer, pixels)
    assert sum(shown) == 2 * most < 2 * windows.reached[0].numel()
    spliced = windows.splice(scorer.step.soft(logits), scorer(clean))
    torch.testing.assert_close(spliced, scorer(whole))


def test_only_the_patch_is_painted_and_the_callers_images_are_not() -> None:
    scorer = network()
    threat = parse_threat("3x4", SIZE)
    assert isinstance(threat, RectangleThreat)
    _, _, whole, clean = attacked_everywhere(scorer, threat)
    for image, place in zip((whole != clean).any(dim=1), threat.placements(), strict=True):
        painted = torch.zeros(SIZE, dtype=torch.bool)
        painted[place.row : place.row + place.height, place.column : place.column + place.width] = True
        assert torch.equal(image, painted)


def test_a_window_is_as_small_as_it_can_be() -> None:
    """17x17 pixels for 5x5 under receptive field 7; one pixel less on each side, and scores inside R(l) change."""
    scorer = network()
    windows, pixels, whole, _ = attacked_everywhere(scorer, parse_threat("5x5", SIZE))
    assert windows.size == (17, 17)
    middle = 6 * 16 + 7  # the patch at (6, 7), its window at (0, 1)
    with torch.no_grad():
        inside = scorer.logits(pixels[middle, None, :, 1:16, 1:16])
        right = scorer.logits(whole[middle, None])[..., 1:16, 2:17]
    reached = windows.reached[middle, None, :, 1:16, 1:16]
    assert bool(((inside - right).abs() * reached > 1e-3).any())


@torch.no_grad()
def test_other_networks_run_whole_images() -> None:
    strided = network(stride=2)
    wrapped = bagcert.wrap(nn.Sequential(nn.Conv2d(3, 4, 5, padding=2), nn.ReLU()).eval(), SIZE)
    for scorer in (strided, wrapped):
        windows, pixels, whole, clean = attacked_everywhere(scorer, parse_threat("3x3", SIZE))
        assert not windows.cropped and windows.size == SIZE
        assert torch.equal(pixels, whole)
        assert torch.equal(windows.splice(scorer.scores(pixels), scorer.scores(clean)), scorer.scores(whole))


@torch.no_grad()
def test_a_receptive_field_larger_than_the_image() -> None:
    scorer = network(kernels=(3, 3, 3, 3, 3, 3, 3, 3, 3))
    windows, pixels, whole, clean = attacked_everywhere(scorer, parse_threat("2x2", SIZE))
    assert windows.size == SIZE
    spliced = windows.splice(scorer.scores(pixels), scorer.scores(clean))
    assert int((spliced - scorer.scores(whole)).abs().max()) <= 1
