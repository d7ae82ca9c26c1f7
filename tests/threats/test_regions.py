"""Sums over regions, and which regions are maximal, against sets of cells."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bagcert.threats import Footprint, Layer, Regions, parse_threat
from bagcert.threats.regions import MaskRegions, SeparableRegions
from tests.rules.test_properties import networks, threats

SLOWLY = settings(deadline=None, max_examples=80, derandomize=True)


def as_sets(regions: Regions) -> list[frozenset[tuple[int, int]]]:
    return [frozenset((int(i), int(j)) for i, j in mask.nonzero()) for mask in regions.masks()]


@SLOWLY
@given(networks(), st.data())
def test_sums_and_sizes(footprint: Footprint, data: st.DataObject) -> None:
    regions = footprint.regions(parse_threat(data.draw(threats(footprint.image_size)), footprint.image_size))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    maps = torch.randint(-(2**40), 2**40, (2, 3, *footprint.grid), generator=generator)
    for chosen in (regions, regions.maximal()):
        masks = chosen.masks()
        plain = (maps[:, :, None] * masks).sum(dim=(-2, -1))
        assert torch.equal(chosen.sums(maps), plain)
        assert torch.equal(chosen.sizes, masks.flatten(1).sum(dim=1))
        assert len(chosen) == len(masks) == len(chosen.placements)
        some = torch.randint(len(chosen), (5,), generator=generator)
        assert torch.equal(chosen.masks(some), masks[some])


@SLOWLY
@given(networks(), st.data())
def test_the_extent_holds_every_region_and_is_no_larger(footprint: Footprint, data: st.DataObject) -> None:
    regions = footprint.regions(parse_threat(data.draw(threats(footprint.image_size)), footprint.image_size))
    cells = [region for region in as_sets(regions) if region]
    sides = [
        max(
            (max(cell[axis] for cell in region) - min(cell[axis] for cell in region) + 1 for region in cells), default=0
        )
        for axis in (0, 1)
    ]
    assert regions.extent == regions.maximal().extent == tuple(sides)


@SLOWLY
@given(networks(), st.data())
def test_maximal_regions(footprint: Footprint, data: st.DataObject) -> None:
    regions = footprint.regions(parse_threat(data.draw(threats(footprint.image_size)), footprint.image_size))
    kept = regions.maximal()
    every, largest = as_sets(regions), as_sets(kept)
    assert len(set(largest)) == len(largest)
    assert set(largest) == {region for region in every if not any(region < other for other in every)}
    for number, region in enumerate(largest):  # each keeps the place of a patch that reaches just it
        assert every[regions.placements.tolist().index(kept.placements[number].tolist())] == region
    assert as_sets(kept.maximal()) == largest


def test_a_patch_that_reaches_nothing_leaves_one_empty_region() -> None:
    """A stride that skips pixels: the odd ones reach no output."""
    footprint = Footprint.identity((1, 4)).mapped(torch.ones(1, 1) > 0, torch.tensor([[True, False, False, False]]))
    pixels = torch.zeros(2, 1, 4, dtype=torch.bool)
    pixels[0, 0, 1] = pixels[1, 0, 3] = True
    regions = footprint.regions(parse_threat(pixels, (1, 4))).maximal()
    assert as_sets(regions) == [frozenset()]
    blind = Footprint.identity((2, 2)).mapped(torch.zeros(2, 2) > 0, torch.eye(2) > 0)
    assert as_sets(blind.regions(parse_threat("1x1", (2, 2))).maximal()) == [frozenset()]


def test_of_equal_regions_the_shape_written_first_keeps_its_own() -> None:
    """Behind a pool of 2x2 a pixel and a pair in its cell reach the same output."""
    footprint = Footprint.of_layers([Layer(2, 2)], (4, 4))
    for patch, shape in (("1x1,1x2", [1, 1]), ("1x2,1x1", [1, 2])):
        regions = footprint.regions(parse_threat(patch, (4, 4)))
        kept = regions.maximal()
        assert sorted(map(sorted, as_sets(kept))) == [[(i, 0), (i, 1)] for i in (0, 1)]
        assert kept.placements[:, 2:].tolist() == [[1, 2]] * 2  # a pair across the seam of two cells
        alike = Footprint.of_layers([Layer(4, 4)], (4, 4)).regions(parse_threat(patch, (4, 4))).maximal()
        assert alike.placements[:, 2:].tolist() == [shape]


def test_regions_are_shown_by_number_and_grid() -> None:
    rows = Footprint.identity((3, 5)).then(Layer((3, 1)))
    regions = rows.regions(parse_threat("1x2", (3, 5)))
    assert repr(regions) == "SeparableRegions(12 on a grid of 1x5)"
    assert repr(rows.regions(parse_threat(torch.ones(2, 3, 5) > 0, (3, 5)))) == "MaskRegions(2 on a grid of 1x5)"


def test_callers_get_their_own_masks() -> None:
    """Writing into the masks handed out changes no region."""
    cross = Footprint.identity((3, 3)).then(Layer((3, 1), padding=(1, 0)))
    for footprint in (cross, cross.join(Footprint.identity((3, 3)).then(Layer((1, 3), padding=(0, 1))))):
        regions = footprint.regions(parse_threat("1x1", (3, 3)))
        regions.masks().fill_(True)
        regions.masks(torch.tensor([0])).fill_(True)
        assert regions.masks(torch.tensor([0])).sum() == regions.sizes[0] < 9


def test_regions_move_to_another_device() -> None:
    """The device `meta` stands for any other: it keeps shapes and no numbers."""
    cross = Footprint.identity((3, 4)).then(Layer((3, 1), padding=(1, 0)))
    there, here = torch.device("meta"), torch.device("cpu")
    for footprint in (cross, cross.join(Footprint.identity((3, 4)).then(Layer((1, 3), padding=(0, 1))))):
        regions = footprint.regions(parse_threat("2*1x1,1x2", (3, 4))).maximal()
        assert regions.to(here) is regions and regions.count == 2
        moved = regions.to(there)
        assert type(moved) is type(regions) and moved is not regions
        assert (len(moved), moved.grid, moved.count) == (len(regions), regions.grid, regions.count)
        assert moved.placements.device == moved.sizes.device == there
        if isinstance(moved, SeparableRegions):
            tables = [table for family in moved.families for table in (family.rows, family.columns, family.kept)]
            assert all(table.device == there for table in tables)
        else:
            maps = torch.zeros(2, 3, 4, dtype=torch.int64, device=there)
            assert moved.masks().device == moved.sums(maps).device == there


def test_three_families_follow_one_another() -> None:
    regions = Footprint.identity((3, 3)).regions(parse_threat("1x3,3x1,2x2", (3, 3)))
    assert isinstance(regions, SeparableRegions) and len(regions.families) == 3
    masks = regions.masks()
    for number in range(len(regions)):  # one by one, and all from the last to the first
        assert torch.equal(regions.masks(torch.tensor([number]))[0], masks[number])
    backwards = torch.arange(len(regions)).flip(0)
    assert torch.equal(regions.masks(backwards), masks.flip(0))
    numbers = torch.arange(9).view(1, 1, 3, 3)
    assert regions.sums(numbers)[0, 0].tolist() == [int((numbers[0, 0] * mask).sum()) for mask in masks]


def test_sets_are_taken_one_at_a_time_unless_told_otherwise() -> None:
    table, places = torch.ones(1, 2, 3, dtype=torch.bool), torch.tensor([[0, 0, 1, 1]])
    assert (MaskRegions(table, places).count, SeparableRegions(()).count) == (1, 1)
    assert parse_threat("1x1", (2, 3)).count == 1
    assert MaskRegions(table, places, 2).maximal().to(torch.device("cpu")).count == 2
