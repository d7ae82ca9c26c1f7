"""Labels by two masks: the definition, every patch of small worlds, and what must hold on any score map."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.rules import TwoMask, read_scores
from bagcert.rules.labels import LabelCertificate, certify_maps
from bagcert.threats import Footprint, Regions, parse_threat
from tests.rules import slow
from tests.rules.test_alerts import centered, every_attack
from tests.rules.test_oracle import SETTINGS, random_maps
from tests.rules.test_properties import cases

SMALL = [0, 3, 5, 7]


def certify(scores: Tensor, thresholds: list[int], regions: Regions, slack: int = 0) -> LabelCertificate:
    return certify_maps(read_scores(scores, None, slack=slack), torch.tensor(thresholds), regions)


def excess(scores: slow.Map, label: int, threshold: int, taken: slow.Region) -> int:
    """The sum above the threshold outside some cells."""
    return sum(scores[label][i][j] - threshold for i, j in slow.cells(scores) if (i, j) not in taken)


def slow_answer(scores: slow.Map, label: int, threshold: int, masks: list[slow.Region]) -> bool:
    for first in masks:
        found = {excess(scores, label, threshold, first | second) > 0 for second in masks}
        if len(found) == 1:
            return found.pop()
    return excess(scores, label, threshold, frozenset()) > 0


def slow_kept(scores: slow.Map, label: int, threshold: int, masks: list[slow.Region], sign: int) -> list[bool]:
    return [all(sign * excess(scores, label, threshold, one | two) > 0 for two in masks) for one in masks]


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
@pytest.mark.parametrize("slack", [0, 1])
def test_definitions(setting: int, slack: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    masks = slow.maximal(slow.dilated_regions(grid, patch, field))
    maps, thresholds = 4 * random_maps(800 + setting, 20, classes, grid, values), [1, 3, 2][:classes]
    found = certify(maps, thresholds, centered(setting), slack)
    for number, scores in enumerate(maps.tolist()):
        low, high = (maps[number] - slack).tolist(), (maps[number] + slack).tolist()
        for label, threshold in enumerate(thresholds):
            assert bool(found.present[number, label]) == slow_answer(scores, label, threshold, masks)
            assert found.kept_present[number, label].tolist() == slow_kept(low, label, threshold, masks, 1)
            assert found.kept_absent[number, label].tolist() == slow_kept(high, label, threshold, masks, -1)
    if patch != grid:
        assert 0 < int(found.proven.sum()) < found.proven.numel()


@pytest.mark.slow
@pytest.mark.parametrize("setting", SMALL)
def test_whatever_the_patch(setting: int) -> None:
    """Every placement and content: proven labels stay, and no more are wrong at once than was said."""
    grid, _, _, classes, values = SETTINGS[setting]
    regions, maps = centered(setting), 2 * random_maps(810 + setting, 12, classes, grid, values)
    thresholds = [1] * classes
    found = certify(maps, thresholds, regions)
    truth = torch.rand(found.present.shape, generator=torch.Generator().manual_seed(setting)) < 0.5
    bound, reached = found.most_wrong(truth), 0
    for number, scores in enumerate(maps):
        attacks = torch.cat([every_attack(scores, region, tuple(2 * v for v in values)) for region in regions.masks()])
        after = certify(attacks, thresholds, regions).present
        assert not bool(((after != found.present[number]) & found.proven[number]).any())
        worst = int((after != truth[number]).sum(dim=1).max())
        assert worst <= int(bound[number])
        assert int((after != found.present[number]).sum(dim=1).max()) <= int(found.most_changed()[number])
        reached += worst == int(bound[number])
    assert reached > len(maps) // 2, "a bound that is seldom reached says little"


@given(cases(high=3), st.integers(-1, 4), st.sampled_from([0, 1]))
def test_what_must_hold_on_any_map(case: tuple[Tensor, Footprint, str], threshold: int, slack: int) -> None:
    scores, footprint, patch = case
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    found = certify(scores, [threshold] * scores.shape[1], regions, slack)
    assert not bool((found.kept_present.any(dim=2) & ~found.present).any())
    assert not bool((found.kept_absent.any(dim=2) & found.present).any())
    wrong = (~found.present).sum(dim=1)  # if all labels were there
    unproven = (~(found.proven & found.present)).sum(dim=1)
    bound = found.most_wrong(torch.ones_like(found.present))
    assert bool((wrong <= bound).all()) and bool((bound <= unproven).all())
    if not slack:
        for label in range(scores.shape[1]):
            duel = torch.stack([torch.full_like(scores[:, label], threshold), scores[:, label]], dim=1)
            single = TwoMask().certify(read_scores(duel, None), regions)
            assert torch.equal(found.present[:, label], single.predicted == 1)
            assert torch.equal(found.proven[:, label], single.certified)
    else:
        sharp = certify(scores, [threshold] * scores.shape[1], regions)
        assert torch.equal(sharp.present, found.present) and bool((found.proven <= sharp.proven).all())


def test_one_threshold_for_all_and_large_ones() -> None:
    maps = random_maps(820, 4, 3, (6, 6), (0, 1)) * 2**20
    one = bagcert.certify_labels(maps, 2**19, "1x1", 1)
    three = bagcert.certify_labels(maps.numpy(), [2**19] * 3, "1x1", 1)
    assert torch.equal(one.present, three.present) and torch.equal(one.proven, three.proven)
    assert not bagcert.certify_labels(maps, 2**40, "1x1", 1).present.any()
    small = torch.tensor([1, 0, 2], dtype=torch.uint16)  # which torch cannot subtract from other integers
    votes = random_maps(821, 4, 3, (6, 6), (0, 3))
    assert torch.equal(
        bagcert.certify_labels(votes, small, "1x1", 1).kept_present,
        bagcert.certify_labels(votes, [1, 0, 2], "1x1", 1).kept_present,
    )


@pytest.mark.parametrize("grid", [(6, 6), (36, 1), (1, 36)])
def test_a_wide_band_keeps_nothing(grid: tuple[int, int]) -> None:
    """Sums of its ends, or of one of them, do not fit into 32 bits, though those of the scores do."""
    maps = random_maps(825, 4, 3, grid, (0, 1))
    found = bagcert.certify_labels(maps, 0, "1x1", 1, slack=88_000_000)
    assert not found.kept_present.any() and not found.kept_absent.any()
    low = bagcert.certify_labels(maps, 44_500_000, "1x1", 1, slack=43_500_000)  # from -88,000,000 to -999,999
    assert not low.kept_present.any() and bool(low.kept_absent.all())
    high = bagcert.certify_labels(maps, -44_500_000, "1x1", 1, slack=43_500_000)
    assert not high.kept_absent.any() and bool(high.kept_present.all())


def test_the_largest_scores_above_a_threshold() -> None:
    """8 * 36 times the largest stays below 2**53; one more does not."""
    maps, most = torch.zeros(1, 2, 6, 6, dtype=torch.int64), (2**53 - 1) // (8 * 36)
    assert bool(bagcert.certify_labels(maps, -most, "1x1", 1).kept_present.all())
    with pytest.raises(UsageError, match="coarser fixed-point grid"):
        bagcert.certify_labels(maps, -most - 1, "1x1", 1)


def test_what_is_refused() -> None:
    maps = random_maps(830, 2, 3, (6, 6), (0, 1))
    for thresholds in ([1, 2], 0.5, [[1, 2, 3]], True):
        with pytest.raises(UsageError, match="for each of 3 labels"):
            bagcert.certify_labels(maps, thresholds, "1x1", 1)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as several:
        bagcert.certify_labels(maps, 1, "2*1x1", 1)
    assert str(several.value) == "Labels are proven against one patch, not several at once. Give another threat."
    for large in (2**60, torch.tensor(2**64 - 1, dtype=torch.uint64)):  # as int64 the latter would be -1
        with pytest.raises(UsageError, match="coarser fixed-point grid"):
            bagcert.certify_labels(maps, large, "1x1", 1)
    found = bagcert.certify_labels(maps, 1, "1x1", 1)
    for truth in (torch.zeros(2, 3), torch.zeros(3, dtype=torch.bool)):
        with pytest.raises(UsageError, match=r"booleans of shape \[2, 3\]"):
            found.most_wrong(truth)
    assert repr(found) == f"LabelCertificate(2 images, {int(found.proven.sum())} of 6 labels proven)"
    assert len(bagcert.certify_labels(maps[:0], 1, "1x1", 1)) == 0
