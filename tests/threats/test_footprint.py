"""Footprints against independent witnesses: real networks with NaN in the patch, and plain enumeration."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bagcert.errors import UsageError
from bagcert.scorers.residual import CIFAR_KERNELS, IMAGENET_KERNELS, ResidualConfig, ResidualScorer
from bagcert.threats import Footprint, Layer, RectangleThreat, parse_threat
from bagcert.threats.footprint import pair
from bagcert.threats.probe import reached_outputs
from bagcert.threats.regions import MaskRegions, SeparableRegions


def patch_pixels(threat: RectangleThreat) -> Tensor:
    """Every placement as a mask of pixels, [n h w]."""
    masks = torch.zeros(len(threat.placements()), *threat.image_size, dtype=torch.bool)
    for mask, (row, column, height, width) in zip(masks, threat.placements(), strict=True):
        mask[row : row + height, column : column + width] = True
    return masks


def rectangles(patch: str, size: tuple[int, int]) -> RectangleThreat:
    threat = parse_threat(patch, size)
    assert isinstance(threat, RectangleThreat)
    return threat


@pytest.mark.parametrize(("field", "largest"), [(5, 81), (7, 121), (9, 169), (11, 225), (13, 289)])
def test_paper_networks_for_cifar10(field: int, largest: int) -> None:
    config = ResidualConfig(width=4, kernels=CIFAR_KERNELS[field], paths=2, shake=True)
    scorer = ResidualScorer(config, (32, 32)).eval()
    assert scorer.footprint.receptive_field == (field, field)
    regions = scorer.footprint.regions(parse_threat("5x5", (32, 32)))
    assert int(regions.sizes.max()) == largest
    assert len(regions.maximal()) == (32 - field - 4 + 1) ** 2
    centered = Footprint.centered(field, 1, (32, 32), (32, 32)).regions(parse_threat("5x5", (32, 32)))
    assert torch.equal(regions.masks(), centered.masks())


@pytest.mark.parametrize("field", [5, 7, 9, 11, 13])
def test_nan_reaches_just_the_footprint_of_cifar10_networks(field: int) -> None:
    """Every placement on a small image that still has an interior."""
    size = (field + 4, field + 6)
    config = ResidualConfig(width=4, kernels=CIFAR_KERNELS[field], paths=2, shake=True)
    scorer = ResidualScorer(config, size).eval()
    network = nn.Sequential(scorer.normalize, scorer.stem, scorer.blocks, scorer.head)
    threat = rectangles("3x2,1x1", size)
    assert torch.equal(reached_outputs(network, patch_pixels(threat), 3), scorer.footprint.regions(threat).masks())


@pytest.mark.parametrize("field", [17, 25, 29])
def test_paper_networks_for_imagenet(field: int) -> None:
    """Sampled placements at 224x224, borders and corners among them; stride 2 in blocks 1 and 3."""
    config = ResidualConfig(
        classes=2,
        width=(4, 4, 4, 6, 6, 8, 8, 8, 8),
        kernels=IMAGENET_KERNELS[field],
        strides=(2, 1, 2, 1, 1, 1, 1, 1),
        paths=1,
        shake=False,
    )
    scorer = ResidualScorer(config, (224, 224)).eval()
    assert scorer.footprint.receptive_field == (field, field)
    assert scorer.footprint.grid == (56, 56)
    threat = rectangles("32x32", (224, 224))
    regions = scorer.footprint.regions(threat)
    network = nn.Sequential(scorer.normalize, scorer.stem, scorer.blocks, scorer.head)
    starts = (0, 1, 2, 3, 61, 98, 191, 192)
    chosen = torch.tensor([row * 193 + column for row, column in zip(starts, starts[::-1], strict=True)])
    pixels = torch.zeros(len(chosen), 224, 224, dtype=torch.bool)
    for mask, place in zip(pixels, chosen.tolist(), strict=True):
        row, column, height, width = regions.placement(place)
        mask[row : row + height, column : column + width] = True
    assert torch.equal(reached_outputs(network, pixels, 3), regions.masks(chosen))


def test_a_stride_on_the_leading_1x1_would_widen_receptive_field_17_to_23() -> None:
    def chain(first: bool) -> Footprint:
        layers = [Layer(3, padding=1)]
        for kernel, stride in zip(IMAGENET_KERNELS[17], (2, 1, 2, 1, 1, 1, 1, 1), strict=True):
            if first:
                layers += [Layer(1, stride), Layer(kernel, padding=kernel // 2)]
            else:
                layers.append(Layer(kernel, stride, padding=kernel // 2))
        return Footprint.of_layers(layers, (224, 224))

    assert chain(first=False).receptive_field == (17, 17)
    assert chain(first=True).receptive_field == (23, 23)


@st.composite
def layer_chains(draw: st.DrawFn) -> tuple[tuple[int, int], list[Layer]]:
    def two(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    layers = [Layer(two(1, 3), two(1, 2), two(1, 2), two(0, 1)) for _ in range(draw(st.integers(1, 3)))]
    return two(5, 12), layers


@settings(deadline=None, max_examples=60, derandomize=True)
@given(layer_chains(), st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_nan_reaches_just_the_footprint_of_any_chain(
    chain: tuple[tuple[int, int], list[Layer]], height: int, width: int, pools: bool
) -> None:
    size, layers = chain
    modules: list[nn.Module] = []
    for number, layer in enumerate(layers):
        (kernel, stride, dilation, padding) = map(pair, (layer.kernel, layer.stride, layer.dilation, layer.padding))
        if pools and number % 2 and 2 * padding[0] <= kernel[0] and 2 * padding[1] <= kernel[1]:
            modules.append(nn.MaxPool2d(kernel, stride, padding, dilation))
        else:
            modules.append(nn.Conv2d(1, 1, kernel, stride, padding, dilation))
    try:
        footprint = Footprint.of_layers(layers, size)
    except UsageError as error:
        assert "does not fit into" in str(error) and "Use larger images or smaller kernels." in str(error)
        with pytest.raises(RuntimeError):
            nn.Sequential(*modules)(torch.zeros(1, 1, *size))
        return
    threat = rectangles(f"{height}x{width}", size)
    assert torch.equal(
        reached_outputs(nn.Sequential(*modules), patch_pixels(threat), 1), footprint.regions(threat).masks()
    )


class Cross(nn.Module):
    """A tall and a wide branch: together a cross, which is no product of rows and columns."""

    def __init__(self) -> None:
        super().__init__()
        self.tall = nn.Conv2d(1, 1, (5, 1), padding=(2, 0))
        self.wide = nn.Conv2d(1, 1, (1, 3), padding=(0, 1))

    def forward(self, images: Tensor) -> Tensor:
        result: Tensor = self.tall(images) + self.wide(images)
        return result


def test_unequal_branches_make_a_mask() -> None:
    size = (7, 6)
    start = Footprint.identity(size)
    footprint = start.then(Layer((5, 1), padding=(2, 0))).join(start.then(Layer((1, 3), padding=(0, 1))))
    assert footprint.receptive_field == (5, 3)
    for patch in ("1x1", "2x2"):
        threat = rectangles(patch, size)
        regions = footprint.regions(threat)
        assert isinstance(regions, MaskRegions)
        assert torch.equal(reached_outputs(Cross(), patch_pixels(threat), 1), regions.masks())


def test_a_branch_inside_another_adds_nothing() -> None:
    start = Footprint.identity((6, 6))
    wide = start.then(Layer(3, padding=1))
    assert len(start.join(wide).branches) == len(wide.join(start).branches) == 1
    assert isinstance(wide.join(start).regions(parse_threat("2x2", (6, 6))), SeparableRegions)


class InTurn(nn.Module):
    """Convolutions side by side, whose maps become one: the first rows of all, then their second rows."""

    def __init__(self, *kernels: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(1, 1, kernel, padding=kernel // 2) for kernel in kernels)

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([layer(images) for layer in self.layers], dim=3).flatten(2, 3)


def test_maps_in_turn_keep_their_own_footprints() -> None:
    size, kernels = (6, 7), (3, 1, 5)
    footprint = Footprint.interleaved([Footprint.centered(kernel, 1, size, size) for kernel in kernels])
    assert (footprint.grid, footprint.image_size, footprint.receptive_field) == ((18, 7), size, (5, 5))
    network = InTurn(*kernels)
    for patch in ("1x1", "2x3", "2x1,1x3"):
        threat = rectangles(patch, size)
        assert torch.equal(reached_outputs(network, patch_pixels(threat), 1), footprint.regions(threat).masks())
    pixels = torch.rand(20, *size, generator=torch.Generator().manual_seed(0)) < 0.1
    regions = footprint.regions(parse_threat(pixels, size))
    assert torch.equal(reached_outputs(network, pixels, 1), regions.masks())


def test_maps_may_have_several_branches_each() -> None:
    start = Footprint.identity((5, 6))
    cross = start.then(Layer((5, 1), padding=(2, 0))).join(start.then(Layer((1, 3), padding=(0, 1))))
    footprint = Footprint.interleaved([start, cross])
    threat = parse_threat("2x2", (5, 6))
    masks = footprint.regions(threat).masks()
    for number, alone in enumerate((start, cross)):
        assert torch.equal(masks[:, number::2], alone.regions(threat).masks())


def test_a_placement_that_reaches_more_in_one_map_alone_stays() -> None:
    """With field 5, a patch in the corner reaches no more than its neighbor; with field 1 it does."""
    size = (1, 9)
    wide, narrow = (Footprint.centered((1, field), 1, size, size) for field in (5, 1))
    kept = [len(each.regions(parse_threat("1x1", size)).maximal()) for each in (wide, narrow)]
    assert kept == [5, 9]
    assert len(Footprint.interleaved([wide, narrow]).regions(parse_threat("1x1", size)).maximal()) == 9


def test_the_same_branches_in_the_same_order_are_the_same_footprint() -> None:
    start = Footprint.identity((5, 6))
    tall, wide = start.then(Layer((3, 1), padding=(1, 0))), start.then(Layer((1, 3), padding=(0, 1)))
    assert tall.same(start.then(Layer((3, 1), padding=(1, 0)))) and tall.join(wide).same(tall.join(wide))
    assert not tall.same(start) and not start.same(tall), "one lies inside the other"
    assert not tall.same(wide) and not tall.join(wide).same(wide.join(tall))
    assert not tall.join(wide).same(tall) and not tall.same(tall.join(wide))


def test_maps_of_different_grids_are_refused() -> None:
    whole, half = (Footprint.identity((6, 6)).then(Layer(1, stride)) for stride in (1, 2))
    with pytest.raises(UsageError, match=r"must end on one grid, but these end on 6x6 and 3x3\. Check their strides"):
        Footprint.interleaved([whole, half])


def test_region_masks_of_any_form() -> None:
    size = (6, 7)
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(20, *size, generator=generator) < 0.1
    network = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Conv2d(1, 1, 2, stride=2))
    footprint = Footprint.of_layers([Layer(3, padding=1), Layer(2, 2)], size)
    regions = footprint.regions(parse_threat(pixels, size))
    assert torch.equal(reached_outputs(network, pixels, 1), regions.masks())


@pytest.mark.parametrize("kept", [(4, 9), (4, 4), (1, 9), (8, 2), (8, 9)])
def test_ablations_wrap_around(kept: tuple[int, int]) -> None:
    """Ablation (a, b) shows rows a..a+s-1 and columns b..b+s-1 modulo the size; a patch reaches what shows it."""
    size = (8, 9)
    footprint = Footprint.ablation(kept, size)
    starts = [range(length if width < length else 1) for length, width in zip(size, kept, strict=True)]
    assert footprint.grid == (len(starts[0]), len(starts[1]))
    regions = footprint.regions(parse_threat("3x2", size))
    for place in range(len(regions)):
        row, column, height, width = regions.placement(place)
        patch = set(itertools.product(range(row, row + height), range(column, column + width)))
        for first, second in itertools.product(*starts):
            shown = {((first + y) % size[0], (second + x) % size[1]) for y in range(kept[0]) for x in range(kept[1])}
            assert bool(regions.masks()[place, first, second]) == bool(shown & patch)


def test_a_strided_window_near_a_seam_is_counted_exactly() -> None:
    """A rival's formula says 5 affected columns for stride 10, width 19, patch 32 of 224; wrapping makes it 6."""
    columns = torch.arange(224)
    starts = torch.arange(0, 224, 10)
    shown = ((columns - starts[:, None]) % 224) < 19
    rows = torch.ones(1, 224, dtype=torch.bool)
    footprint = Footprint.identity((224, 224)).mapped(rows, shown)
    assert int(footprint.regions(parse_threat("32x32", (224, 224))).sizes.max()) == 6


def test_centered_refuses_what_does_not_fit() -> None:
    with pytest.raises(
        UsageError, match="Receptive field 7x7 and stride 2x2 on 32x32 images make a score grid of 16x16"
    ):
        Footprint.centered(7, 2, (32, 32), (32, 32))
    with pytest.raises(UsageError, match=r"receptive field must be odd, but this one is 4x4\. Pass footprint="):
        Footprint.centered(4, 1, (32, 32), (32, 32))
    with pytest.raises(
        UsageError, match=r"Receptive field and stride must be at least 1, but one is 0\. Give pixels\."
    ):
        Footprint.centered(0, 1, (32, 32), (32, 32))
    with pytest.raises(UsageError, match=r"must keep 1 to 8 pixels, but this one keeps 9\. Choose another number\."):
        Footprint.ablation((9, 1), (8, 8))
    with pytest.raises(UsageError, match=r"Branches must end on one grid, but these end on 4x4 and 2x2\. Check their"):
        Footprint.identity((4, 4)).join(Footprint.identity((4, 4)).then(Layer(1, 2)))
    with pytest.raises(UsageError, match="The threat is for images of 5x5, but these have 4x4"):
        Footprint.identity((4, 4)).regions(parse_threat("1x1", (5, 5)))


def test_a_kernel_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        Footprint.identity((4, 9)).then(Layer(3, 1, 4, 1))
    assert str(error.value) == (
        "Kernel 3 with dilation 4 does not fit into 4 inputs padded by 1. Use larger images or smaller kernels."
    )


def test_refusals_name_rows_before_columns() -> None:
    """Every number of each message, none equal to its neighbor."""
    remedy = "footprint=Footprint.of_layers(...)"
    for field in ((4, 5), (5, 4)):
        with pytest.raises(UsageError) as error:
            Footprint.centered(field, 1, (32, 32), (32, 32))
        assert str(error.value) == (
            f"A centered receptive field must be odd, but this one is {field[0]}x{field[1]}. Pass {remedy} for a "
            "network whose outputs are not centered."
        )
    with pytest.raises(UsageError) as error:
        Footprint.centered((7, 5), (2, 3), (32, 31), (9, 8))
    assert str(error.value) == (
        "Receptive field 7x5 and stride 2x3 on 32x31 images make a score grid of 16x11, but this one is 9x8. "
        f"Check image_size and stride, or pass {remedy}."
    )
    with pytest.raises(UsageError) as error:
        Footprint.identity((6, 4)).join(Footprint.identity((6, 4)).then(Layer(1, (3, 4))))
    assert (
        str(error.value)
        == "Branches must end on one grid, but these end on 6x4 and 2x1. Check their strides and padding."
    )
    with pytest.raises(UsageError) as error:
        Footprint.identity((4, 3)).regions(parse_threat("1x1", (5, 6)))
    assert str(error.value) == "The threat is for images of 5x6, but these have 4x3. Build it for this image size."


@pytest.mark.parametrize("number", [1.5, "7", (1, 2, 3), (1.0, 2), None])
def test_sizes_are_whole_numbers(number: object) -> None:
    with pytest.raises(UsageError) as error:
        Footprint.centered(number, 1, (8, 8), (8, 8))  # type: ignore[arg-type]
    words = f"A size must be a whole number of pixels, or rows and columns, but is {number!r}. Give 7 or (7, 5)."
    assert str(error.value) == words
    with pytest.raises(UsageError) as error:
        Footprint.ablation(number, (8, 8))  # type: ignore[arg-type]
    assert str(error.value) == words


def test_numbers_of_numpy_are_whole_numbers() -> None:
    assert pair(np.int64(3)) == (3, 3)  # type: ignore[arg-type]
    assert pair([np.uint8(3), 5]) == (3, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "stride"), [((3, 5), (2, 3)), ((5, 3), (1, 2)), ((1, 1), (1, 1))])
def test_centered_fields_differ_by_axis(field: tuple[int, int], stride: tuple[int, int]) -> None:
    """Output (i, j) sees the pixels within half a field of (i, j) times the stride, and no others."""
    size, grid = (8, 9), (-(-8 // stride[0]), -(-9 // stride[1]))
    footprint = Footprint.centered(field, stride, size, grid)
    assert footprint.grid == grid
    regions = footprint.regions(parse_threat("1x1", size))
    for place, (row, column) in enumerate(itertools.product(range(size[0]), range(size[1]))):
        for i, j in itertools.product(range(grid[0]), range(grid[1])):
            near = abs(i * stride[0] - row) <= field[0] // 2 and abs(j * stride[1] - column) <= field[1] // 2
            assert bool(regions.masks()[place, i, j]) == near


def test_matrices_are_booleans() -> None:
    for footprint in (Footprint.ablation((2, 3), (4, 3)), Footprint.centered(3, 1, (4, 4), (4, 4))):
        for branch in footprint.branches:
            assert branch.rows.dtype == branch.columns.dtype == torch.bool


def test_a_footprint_stays_where_it_is_while_networks_are_built_elsewhere() -> None:
    """The device `meta` stands for any other: it keeps shapes and no numbers."""
    with torch.device("meta"):
        footprint = Footprint.identity((6, 5)).then(Layer((3, 2), stride=2))
        assert (footprint.receptive_field, footprint.grid) == ((3, 2), (2, 2))
        assert Footprint.ablation((6, 2), (6, 5)).receptive_field == (6, 5)  # the last one wraps around


def test_outputs_that_see_nothing_have_no_extent() -> None:
    start = Footprint.identity((1, 3))
    blind, half = torch.zeros(2, 1) > 0, torch.tensor([[False, True, False], [False, False, False]])
    assert start.mapped(blind, half).receptive_field == (0, 1)
    assert start.mapped(torch.ones(1, 1), torch.zeros(1, 3)).receptive_field == (1, 0)
    gaps = torch.tensor([[False, True, False], [True, False, True]])
    assert start.mapped(torch.ones(1, 1), gaps).receptive_field == (1, 3)


@pytest.mark.parametrize("layer", [Layer(0), Layer(1, 0), Layer(1, 1, 0), Layer(3, padding=-1), Layer((3, 0))])
def test_layers_that_see_nothing_are_refused(layer: Layer) -> None:
    with pytest.raises(UsageError, match="Kernel, stride and dilation must be at least 1 and padding at least 0"):
        Footprint.of_layers([layer], (6, 6))
