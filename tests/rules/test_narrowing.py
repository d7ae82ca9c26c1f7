"""Of many classes most are left out early: no certificate may notice."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules import Certificate, Detect, EveryRegion, IntegerScores, Rule, TwoMask, read_scores, rule
from bagcert.rules.rule import FEW, alike
from bagcert.threats import Footprint, Layer, Regions, parse_threat
from bagcert.threats.regions import MaskRegions
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
    return {name: value.tolist() for name, value in vars(certificate).items() if isinstance(value, Tensor)}


@given(
    st.integers(0, 2**32),
    st.sampled_from(["plain", "votes", "slack"]),
    st.sampled_from(["1x1", "2x2", "1x3", "1x4,3x1"]),
    st.sampled_from([(0, 1), (0, 1, 4), (-3, -1, 2), (5, 6, 9)]),
)
def test_certificates_are_those_of_all_classes(seed: int, kind: str, patch: str, values: tuple[int, ...]) -> None:
    over = regions(patch)
    scores = bands(maps(seed, 12, (0, 1) if kind == "votes" else values), seed, kind)
    for which, exact in ((EveryRegion(), True), (EveryRegion(), False), (TwoMask(), False)):
        assert fields(which.certify(scores, over, exact)) == fields(dense(which, scores, over, exact))


@given(st.integers(0, 2**32))
def test_masks_of_a_larger_threat_are_the_ones_that_count(seed: int) -> None:
    scores = bands(maps(seed, 12, (0, 1, 3)), seed, "plain")
    which, over = TwoMask(masks=regions("2x2")), regions("1x1")
    assert fields(which.certify(scores, over, False)) == fields(dense(which, scores, over, False))


@pytest.mark.parametrize("seed", range(4))
def test_against_one_patch_under_masks_for_two_no_class_is_left_out(seed: int) -> None:
    """Outside two masks a class may lead that one mask leaves behind."""
    scores = read_scores(maps(seed, 40, (0, 1, 5)), None)
    masks = FOOTPRINT.regions(parse_threat("2*1x1", GRID)).maximal()
    for which in (TwoMask(masks), TwoMask(masks, alert_above=1), Detect(1, masks)):
        found, whole = (
            fields(each) for each in (which.certify(scores, regions("1x1"), False), dense(which, scores, masks, False))
        )
        assert found == whole
        assert "alert" not in found or (any(found["alert"]) and any(found["detectable"]))


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
    draw = torch.Generator().manual_seed(0)
    needed = torch.rand(50, 40, generator=draw) < torch.rand(50, 1, generator=draw) ** 2
    needed[:, 7] = True
    groups = list(alike(needed))
    assert len(groups) > 3
    assert sorted(torch.cat([images for images, _ in groups]).tolist()) == list(range(50))
    for images, classes in groups:
        counts = needed[images].sum(dim=1)
        assert classes.shape[1] == int(counts.max()) <= 2 * int(counts.min())
        assert (classes.diff(dim=1) > 0).all()
        assert torch.equal(needed[images].gather(1, classes).sum(dim=1), counts)


def line(*sets: Iterable[int], cells: int) -> Regions:
    """Regions on a single row of cells."""
    table = torch.zeros(len(sets), 1, cells, dtype=torch.bool)
    for number, members in enumerate(sets):
        table[number, 0, list(members)] = True
    return MaskRegions(table, torch.zeros(len(sets), 4, dtype=torch.int64))


SINGLES = line(*([cell] for cell in range(7)), cells=7)


def test_a_guard_band_keeps_rivals_that_may_be_higher() -> None:
    scores = torch.zeros(1, 17, 1, 7, dtype=torch.int32)
    scores[:, 0] = 2  # 1 after a unit of slack, where all others may be 1 too
    found = TwoMask().certify(read_scores(scores, (0, 2), slack=1), SINGLES, exact=False)
    assert (found.predicted.tolist(), found.certified.tolist()) == ([0], [False])


def test_a_rival_that_another_one_hides_is_looked_at() -> None:
    """The largest rival leaves a lead of 1; a smaller one, out of the region's reach, leaves none."""
    scores = torch.zeros(1, 17, 1, 8, dtype=torch.int32)
    scores[:, 0], scores[:, 1, 0, :5], scores[:, 2, 0, 4:] = 1, 1, 1
    over = line([0, 1], [2, 3], cells=8)
    assert EveryRegion().certify(read_scores(scores[:, :2]), over, exact=False).certified.tolist() == [True]
    assert EveryRegion().certify(read_scores(scores), over, exact=False).certified.tolist() == [False]


def test_where_nothing_sets_classes_apart_one_is_still_there() -> None:
    flat = TwoMask().certify(read_scores(torch.zeros(1, 17, 1, 7)), SINGLES, exact=False)
    assert (flat.predicted.tolist(), flat.certified.tolist()) == ([0], [False])
    votes, all_of_them = torch.ones(1, 17, 1, 7), torch.ones(1, 17, 1, 7, dtype=torch.bool)
    unsure = TwoMask().certify(read_scores(votes, uncertain=all_of_them), line(range(5), cells=7), exact=False)
    assert (unsure.predicted.tolist(), unsure.certified.tolist()) == ([0], [False])


def rows(*texts: str) -> Tensor:
    """One image: the scores of some classes on a single row of cells, and classes without any; `-` is -1."""
    cells = [[-1 if cell == "-" else int(cell) for cell in text] for text in texts]
    rest = [[min(map(min, cells))] * len(cells[0])] * (17 - len(texts))
    return torch.tensor(cells + rest, dtype=torch.int32)[:, None]


def test_just_those_that_can_come_closest_are_needed() -> None:
    """Outside {0, 1} or {2, 3} the first class keeps 6 or 5 of its votes, less 2: `floor` is 4, in the last image 3."""
    images = [
        rows("11111111", "11111000", "00000111", "00001111", "00000011"),  # the largest rival leaves a lead of 1
        rows("11111111", "11111100", "00000111", "00001111", "00000011"),  # of 0
        rows("11111111", "11111111", "00000111", "00111111", "00000011"),  # of -2
        rows("11111110", "11110000", "00000111", "00001110", "00000011"),  # of 1
    ]
    scores, over = read_scores(torch.stack(images)), line([0, 1], [2, 3], cells=8)
    exact = EveryRegion()._needed(scores, over, exact=True)
    assert [row.nonzero().flatten().tolist() for row in exact] == [[0, 1, 2, 3], [0, 1, 3], [0, 1, 3], [0, 1, 2, 3, 4]]
    decides = EveryRegion()._needed(scores, over, exact=False)
    assert [row.nonzero().flatten().tolist() for row in decides] == [[0, 1, 3], [0, 1], [0, 1], [0, 1, 2, 3]]


def test_just_those_that_reach_what_two_masks_leave_are_needed() -> None:
    images = [
        rows("1111111", "1111100", "1111000"),  # 7 less 1 and 1
        rows("3111111", "1110000", "1100000"),  # 9 less 3 and 3
        rows("0000000", "00000--", "0000---"),  # the first image, lower by 1
    ]
    needed = TwoMask()._needed(read_scores(torch.stack(images), (-1, 3)), SINGLES, exact=False)
    assert needed is not None
    assert [row.nonzero().flatten().tolist() for row in needed] == [[0, 1]] * 3


def test_many_classes_without_bounds_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match="Rule 'every-region' needs bounds, but they are None"):
        EveryRegion().certify(read_scores(torch.zeros(1, 17, 1, 7), None), SINGLES)


def test_no_images_are_no_certificates() -> None:
    empty = read_scores(torch.zeros(0, CLASSES, *GRID, dtype=torch.int32))
    assert EveryRegion().certify(empty, regions("1x1")).predicted.tolist() == []


@pytest.mark.parametrize("classes", [FEW, FEW + 1])
def test_many_begin_above_few(classes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def needed(self: EveryRegion, scores: IntegerScores, over: Regions, exact: bool) -> None:
        asked.append(classes)

    monkeypatch.setattr(rule, "FEW", FEW)
    monkeypatch.setattr(EveryRegion, "_needed", needed)
    EveryRegion().certify(read_scores(maps(0, 2, (0, 1), classes)), regions("1x1"))
    assert asked == ([] if classes == FEW else [classes])
