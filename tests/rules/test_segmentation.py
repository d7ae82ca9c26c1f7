"""A class for every position: every patch of small worlds reaches the bound, and none goes below."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.rules import read_scores
from bagcert.rules.segmentation import segment
from bagcert.threats import Footprint, parse_threat
from tests.rules import slow
from tests.rules.test_alerts import centered, every_attack
from tests.rules.test_oracle import SETTINGS, random_maps
from tests.rules.test_properties import cases


@pytest.mark.slow
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_the_bound_is_the_worst_of_all_patches(setting: int) -> None:
    """Every placement and content over the alphabet, from the definition."""
    grid, _, _, classes, values = SETTINGS[setting]
    regions, maps = centered(setting), random_maps(1000 + setting, 8, classes, grid, values)
    labels = torch.randint(0, classes, (8, *grid), generator=torch.Generator().manual_seed(setting))
    found = segment(read_scores(maps, None), labels, regions)
    for number, scores in enumerate(maps):
        cells = slow.cells(scores.tolist())
        best = {(i, j): slow.first_best(scores[:, i, j].tolist()) for i, j in cells}
        assert found.predicted[number].flatten().tolist() == list(best.values())
        assert int(found.right[number].sum()) == sum(best[cell] == int(labels[number][cell]) for cell in cells)
        attacks = torch.cat([every_attack(scores, region, values) for region in regions.masks()])
        survived = (attacks.argmax(dim=1) == labels[number]).flatten(1).sum(dim=1)
        assert int(survived.min()) == int(found.surviving[number])


@given(cases(high=2), st.sampled_from([0, 1]), st.integers(0, 2**31))
def test_what_must_hold_on_any_map(case: tuple[Tensor, Footprint, str], slack: int, seed: int) -> None:
    """Any scores at the weakest place, any change inside the band elsewhere."""
    scores, footprint, patch = case
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, scores.shape[1], (len(scores), *footprint.grid), generator=draw)
    found = segment(read_scores(scores, None, slack=slack), labels, regions)
    right = found.right.flatten(1).sum(dim=1)
    assert bool((found.surviving <= right).all()) and bool((found.surviving >= right - regions.sizes.max()).all())
    noise = torch.randint(-slack, slack + 1, scores.shape, generator=draw)
    places = torch.randint(0, len(regions), (len(scores),), generator=draw)
    weakest = torch.tensor([regions.placements.tolist().index(place) for place in found.weakest_region.tolist()])
    for chosen in (places, weakest):
        taken = regions.masks(chosen)[:, None]
        changed = torch.where(taken, torch.randint(0, 9, scores.shape, generator=draw), scores + noise)
        after = (changed.argmax(dim=1) == labels).flatten(1).sum(dim=1)
        assert bool((after >= found.surviving).all())


def test_two_patches_take_at_most_twice_as_much() -> None:
    maps, labels = random_maps(1100, 6, 2, (1, 7), (0, 1)), torch.zeros(6, 1, 7, dtype=torch.int64)
    two = bagcert.certify_segmentation(maps, labels, "2*1x1", 3)
    regions = Footprint.centered(3, 1, (1, 7), (1, 7)).regions(parse_threat("1x1", (1, 7))).maximal()
    for number, scores in enumerate(maps):
        for first in regions.masks():
            for second in regions.masks():
                worst = scores.masked_fill(first | second, 0)
                worst[1] = worst[1].masked_fill(first | second, 1)
                assert int((worst.argmax(dim=0) == 0).sum()) >= int(two.surviving[number])


def test_ties_inside_the_band_and_patches_that_take_all() -> None:
    """3 against 1, each off by 1: both may be 2, and then the lower class is given."""
    scores, labels = torch.tensor([[[[1, 0]], [[3, 3]]]]), torch.ones(1, 1, 2, dtype=torch.int64)
    found = bagcert.certify_segmentation(scores, labels, "1x1", 1, slack=1)
    assert found.right.tolist() == [[[False, True]]] and found.surviving.tolist() == [0]
    both = bagcert.certify_segmentation(scores, labels, "2*1x1", 3)
    assert both.right.all() and both.surviving.tolist() == [0]


@pytest.mark.parametrize("kind", [torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint64])
@pytest.mark.parametrize("slack", [0, 1])
def test_classes_of_any_whole_type(kind: torch.dtype, slack: int) -> None:
    maps = random_maps(1300, 4, 3, (3, 5), (0, 2, 5))
    labels = torch.randint(0, 3, (4, 3, 5), generator=torch.Generator().manual_seed(0))
    found, same = (
        bagcert.certify_segmentation(maps, each, "1x2", 1, slack=slack) for each in (labels.to(kind), labels)
    )
    assert torch.equal(found.right, same.right) and torch.equal(found.surviving, same.surviving)
    right, surviving = int(same.right.sum()), int(same.surviving.sum())
    assert 0 < surviving < right < 60
    assert repr(found) == f"Segmentation(4 images, of 60 positions {right} right, {surviving} under any patch)"


def test_what_is_refused() -> None:
    maps = random_maps(1200, 2, 3, (6, 6), (0, 1))
    flat = torch.zeros(2, 6, 6)
    for labels in (flat[:, :, 1:].long(), flat, flat.bool(), flat.to(torch.complex64)):
        with pytest.raises(UsageError, match="whole numbers of shape"):
            bagcert.certify_segmentation(maps, labels, "1x1", 1)
    for label in (-1, 3):
        with pytest.raises(UsageError, match=r"0\.\.2"):
            bagcert.certify_segmentation(maps, torch.full((2, 6, 6), label), "1x1", 1)
    with pytest.raises(UsageError, match=r"0\.\.2"):
        bagcert.certify_segmentation(maps, torch.full((2, 6, 6), 2**64 - 1, dtype=torch.uint64), "1x1", 1)
    assert len(bagcert.certify_segmentation(maps[:0], torch.zeros(0, 6, 6).long(), "1x1", 1)) == 0
