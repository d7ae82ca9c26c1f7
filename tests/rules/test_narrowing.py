"""Of many classes most are left out early: no certificate may notice."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagcert.rules import Certificate, EveryRegion, IntegerScores, Rule, TwoMask, read_scores, rule
from bagcert.rules.narrowing import FEW, alike
from bagcert.threats import Footprint, Layer, Regions, parse_threat
from tests.rules import slow

GRID, CLASSES = (6, 7), 7
FOOTPRINT = Footprint.of_layers([Layer(3, 1, 1, 1)], GRID)


@pytest.fixture(autouse=True)
def _always(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rule, "FEW", 1)
    yield


def regions(patch: str) -> Regions:
    return FOOTPRINT.regions(parse_threat(patch, GRID)).maximal()


def maps(seed: int, images: int, values: tuple[int, ...], classes: int = CLASSES) -> Tensor:
    """A favorite, and the others from rare to frequent; some classes are copies."""
    draw = torch.Generator().manual_seed(seed)
    chances = torch.rand(images, classes, 1, 1, generator=draw) ** 2 * torch.rand(images, 1, 1, 1, generator=draw)
    favorites = torch.randint(classes, (images, 1), generator=draw)
    chances.flatten(1).scatter_(1, favorites, 0.6 + 0.4 * torch.rand(images, 1, generator=draw))
    levels = torch.tensor(values)
    drawn = levels[torch.randint(1, len(values), (images, classes, *GRID), generator=draw)]
    found = torch.where(torch.rand(images, classes, *GRID, generator=draw) < chances, drawn, levels[0])
    found[::3, -1] = found[::3, 0]
    return found


def bands(scores: Tensor, seed: int, kind: str) -> IntegerScores:
    bounds = (int(scores.min()), int(scores.max()) + 1) if kind != "votes" else (0, 1)
    if kind == "slack":
        return read_scores(scores, bounds, slack=1)
    draw = torch.Generator().manual_seed(seed)
    uncertain = torch.rand(scores.shape, generator=draw) < 0.05 if kind == "votes" else None
    return read_scores(scores, bounds, uncertain)


def dense(which: Rule, scores: IntegerScores, over: Regions, exact: bool) -> Certificate:
    return which._certify(scores, over, exact)


def fields(certificate: Certificate) -> dict[str, Any]:
    return {name: value.tolist() for name, value in vars(certificate).items() if value is not None}


@given(
    st.integers(0, 2**32),
    st.sampled_from(["plain", "votes", "slack"]),
    st.sampled_from(["1x1", "2x2", "1x3", "1x4+3x1"]),
    st.sampled_from([(0, 1), (0, 1, 4), (-3, -1, 2), (5, 6, 9)]),
)
def test_certificates_are_those_of_all_classes(seed: int, kind: str, patch: str, values: tuple[int, ...]) -> None:
    over = regions(patch)
    scores = bands(maps(seed, 12, (0, 1) if kind == "votes" else values), seed, kind)
    for which in (EveryRegion(), TwoMask()):
        for exact in (True, False):
            assert fields(which.certify(scores, over, exact)) == fields(dense(which, scores, over, exact))


@given(st.integers(0, 2**32))
def test_masks_of_a_larger_threat_are_the_ones_that_count(seed: int) -> None:
    scores = bands(maps(seed, 12, (0, 1, 3)), seed, "plain")
    which, over = TwoMask(masks=regions("2x2")), regions("1x1")
    assert fields(which.certify(scores, over, False)) == fields(dense(which, scores, over, False))


@pytest.mark.parametrize("patch", ["1x1", "1x2"])
def test_decisions_are_those_of_the_definitions(patch: str) -> None:
    height, width = (int(side) for side in patch.split("x"))
    cells = slow.dilated_regions(GRID, (height, width), 3)
    masks = slow.maximal(cells)
    drawn = maps(1, 12, (0, 1))
    by_region = EveryRegion().certify(read_scores(drawn), regions(patch))
    by_pair = TwoMask().certify(read_scores(drawn), regions(patch), exact=False)
    assert by_region.lead is not None
    for number, scores in enumerate(drawn.tolist()):
        plain, predicted = slow.plain(scores), slow.two_mask(scores, masks)
        assert int(by_region.predicted[number]) == plain
        assert int(by_region.lead[number]) == slow.region_lead(scores, plain, cells)
        assert int(by_pair.predicted[number]) == predicted
        assert bool(by_pair.certified[number]) == (slow.pair_lead(scores, predicted, masks) > 0)
    assert 0 < int(by_region.certified.sum()) <= int(by_pair.certified.sum()) < len(drawn)


def test_most_classes_are_left_out_where_one_leads_by_far() -> None:
    drawn = torch.zeros(4, 1000, *GRID, dtype=torch.int32)
    drawn[:, 3] = 1
    drawn[:, 5, :2] = 1
    drawn[:, 900, 0, 0] = 1
    scores, over = read_scores(drawn), regions("1x1")
    needed = EveryRegion()._needed(scores, over, exact=True)
    assert needed.sum(dim=1).tolist() == [2] * 4 and needed[:, [3, 5]].all()
    kept = TwoMask()._needed(scores, over, exact=False)
    assert kept is not None and kept.nonzero().tolist() == [[number, 3] for number in range(4)]


def test_groups_hold_every_image_once_with_all_it_needs() -> None:
    needed = torch.rand(50, 40, generator=torch.Generator().manual_seed(0)) < torch.rand(50, 1) ** 2
    needed[:, 7] = True
    groups = list(alike(needed))
    assert sorted(torch.cat([images for images, _ in groups]).tolist()) == list(range(50))
    for images, classes in groups:
        assert (classes.diff(dim=1) > 0).all()
        counts = needed[images].sum(dim=1)
        assert classes.shape[1] == int(counts.max()) < 2 * int(counts.min()) or counts.max() <= 2 * counts.min()
        assert torch.equal(needed[images].gather(1, classes).sum(dim=1), counts)


def test_no_images_and_few_classes_take_the_plain_way() -> None:
    empty = read_scores(torch.zeros(0, CLASSES, *GRID, dtype=torch.int32))
    assert EveryRegion().certify(empty, regions("1x1")).predicted.tolist() == []
    assert FEW >= 10  # CIFAR-10's classes are few
