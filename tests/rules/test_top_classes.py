"""Sets of classes: the definition, every patch of small worlds, and what must hold on any score map."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.rules import EveryRegion, TwoMask, read_scores, rule, top_classes
from bagcert.rules.top_classes import TopClasses
from bagcert.threats import Footprint, Regions, parse_threat
from bagcert.threats.regions import MaskRegions
from tests.rules import slow
from tests.rules.test_alerts import centered, every_attack
from tests.rules.test_narrowing import SINGLES, rows
from tests.rules.test_oracle import SETTINGS, random_maps
from tests.rules.test_properties import cases

THREE = [0, 4, 5]  # settings of three classes, where k = 2 says something


def best_outside(scores: slow.Map, without: slow.Region, best: int) -> list[int]:
    """The classes with the largest sums, the lower index first."""
    return sorted(range(len(scores)), key=lambda label: (-slow.total(scores, label, without), label))[:best]


def slow_members(scores: slow.Map, masks: list[slow.Region], best: int) -> set[int]:
    found: set[int] = set()
    for first in masks:
        found |= set.intersection(*(set(best_outside(scores, first | second, best)) for second in masks))
    for label in best_outside(scores, frozenset(), len(scores)):
        if len(found) < best:
            found.add(label)
    return found


def slow_proven(low: slow.Map, high: slow.Map, masks: list[slow.Region], best: int) -> set[int]:
    def stays(label: int, taken: slow.Region) -> bool:
        others = [slow.total(high, rival, taken) for rival in range(len(low)) if rival != label]
        return sum(other >= slow.total(low, label, taken) for other in others) < best

    pairs = [first | second for first in masks for second in masks]
    return {label for label in range(len(low)) if all(stays(label, taken) for taken in pairs)}


def sets_of(flags: Tensor) -> list[set[int]]:
    return [set(row.nonzero().flatten().tolist()) for row in flags]


def certify(scores: Tensor, best: int, regions: Regions, masks: Regions | None = None, slack: int = 0) -> TopClasses:
    return TwoMask(masks).certify_top(read_scores(scores, None, slack=slack), best, regions)


@pytest.mark.parametrize("setting", THREE)
@pytest.mark.parametrize("best", [1, 2])
@pytest.mark.parametrize("slack", [0, 1])
def test_definitions(setting: int, best: int, slack: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    masks = slow.maximal(slow.dilated_regions(grid, patch, field))
    maps = random_maps(900 + setting, 40, classes, grid, values)
    if slack:
        maps = 3 * maps  # else a band of one unit proves nothing
    found = certify(maps, best, centered(setting), slack=slack)
    low, high = (maps - slack).tolist(), (maps + slack).tolist()
    assert sets_of(found.members) == [slow_members(scores, masks, best) for scores in maps.tolist()]
    assert sets_of(found.proven) == [slow_proven(*both, masks, best) for both in zip(low, high, strict=True)]
    assert 0 < int(found.proven.sum()) < int(found.members.sum())


@pytest.mark.slow
@pytest.mark.parametrize("setting", THREE)
def test_whatever_the_patch_a_proven_class_stays_in_the_set(setting: int) -> None:
    """Every placement and every content over the alphabet; of what is not proven, some is taken out."""
    grid, _, _, classes, values = SETTINGS[setting]
    regions, maps = centered(setting), random_maps(910 + setting, 12, classes, grid, values)
    lost = 0
    for best in (1, 2):
        found = certify(maps, best, regions)
        for scores, members, proven in zip(maps, found.members, found.proven, strict=True):
            attacks = torch.cat([every_attack(scores, region, values) for region in regions.masks()])
            after = certify(attacks, best, regions).members.all(dim=0)
            assert bool((proven <= after).all()), (best, scores)
            lost += int((members & ~after).sum())
    assert lost


@pytest.mark.slow
def test_masks_of_a_larger_threat_prove_a_smaller_one() -> None:
    """Single pixels under the masks of two: more is proven than for two, and no pixel takes it out."""
    grid = (1, 6)
    pixels, pairs = (Footprint.identity(grid).regions(parse_threat(patch, grid)) for patch in ("1x1", "1x2"))
    maps = random_maps(920, 60, 3, grid, (0, 1, 2))
    small, large = (certify(maps, 2, regions, pairs) for regions in (pixels, pairs))
    assert torch.equal(small.members, large.members), "the masks make the set"
    assert bool((large.proven <= small.proven).all()) and int(small.proven.sum()) > int(large.proven.sum())
    for scores, proven in zip(maps, small.proven, strict=True):
        attacks = torch.cat([every_attack(scores, region, (0, 1, 2)) for region in pixels.masks()])
        assert bool((proven <= certify(attacks, 2, pairs).members.all(dim=0)).all())
    with pytest.raises(UsageError, match="larger than the rule's masks"):
        certify(maps, 2, pairs, pixels)


@given(cases(high=2), st.integers(1, 4), st.sampled_from([0, 1]))
def test_what_must_hold_on_any_map(case: tuple[Tensor, Footprint, str], best: int, slack: int) -> None:
    scores, footprint, patch = case
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    best = min(best, scores.shape[1] - 1)
    found = certify(scores, best, regions, slack=slack)
    assert bool((found.proven <= found.members).all())
    assert bool((found.sizes >= best).all()) and bool((found.proven.sum(dim=1) <= best).all())
    assert bool((found.proven <= certify(scores, best, regions).proven).all()), "a guard band proves no more"
    if best > 1:
        assert bool((certify(scores, best - 1, regions, slack=slack).proven <= found.proven).all())
    else:
        single = TwoMask().certify(read_scores(scores, None, slack=slack), regions)
        assert bool((found.sizes == 1).all()) and torch.equal(found.members.int().argmax(dim=1), single.predicted)
        assert torch.equal(found.proven.any(dim=1), single.certified)


@given(cases(), st.integers(1, 4))
def test_the_rank_by_sums_implies_the_set(case: tuple[Tensor, Footprint, str], best: int) -> None:
    """Of votes: whom every-region keeps among the best, two masks keep in the set."""
    scores, footprint, patch = case
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    best = min(best, scores.shape[1] - 1)
    found = certify(scores, best, regions)
    for label in range(scores.shape[1]):
        ranks = EveryRegion().worst_rank(read_scores(scores), torch.full((len(scores),), label), regions)
        assert bool(((ranks <= best) <= found.proven[:, label]).all())


def test_a_set_may_be_larger_than_k() -> None:
    """Two classes lead the third outside different masks."""
    maps = random_maps(930, 400, 4, (1, 6), (0, 1, 2))
    regions = Footprint.identity((1, 6)).regions(parse_threat("1x1", (1, 6)))
    assert int(certify(maps, 2, regions).sizes.max()) > 2


def test_few_of_many_classes_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Narrowing to the classes that matter, and pieces of any size, change nothing."""
    maps = random_maps(940, 30, 24, (5, 5), (0, 4, 8))
    maps -= 3 * torch.arange(24)[None, :, None, None]
    regions = Footprint.identity((5, 5)).regions(parse_threat("1x1", (5, 5)))
    for slack in (0, 1):
        few = certify(maps, 3, regions, slack=slack)
        needed = top_classes.needed(read_scores(maps, None, slack=slack), 3, regions)
        assert 4 * len(maps) < int(needed.sum()) < needed.numel()
        with monkeypatch.context() as patched:
            patched.setattr(top_classes, "FEW", 99)
            patched.setitem(rule.CHUNK_CELLS, "cpu", 1)
            every = certify(maps, 3, regions, slack=slack)
        assert torch.equal(few.members, every.members) and torch.equal(few.proven, every.proven)


def test_a_class_that_just_reaches_what_two_masks_leave_is_looked_at() -> None:
    """Outside the cells 0 and 1 the first class keeps 5, and so does the third; the second has more, but not there."""
    scores = rows("2211111", "3300000", "0011111")[None]
    assert top_classes.needed(read_scores(scores, None), 1, SINGLES)[0].nonzero().flatten().tolist() == [0, 1, 2]
    found = certify(scores, 1, SINGLES)
    assert sets_of(found.members) == [{0}] and sets_of(found.proven) == [set()]
    without = certify(scores[:, [0, 1, *range(3, 17)]], 1, SINGLES)
    assert sets_of(without.proven) == [{0}]


@pytest.mark.parametrize("classes", [3, 40])
def test_of_equal_sums_the_lower_classes_fill_up(classes: int) -> None:
    """One mask takes all, so that outside it no class is better than another; without it every second class is."""
    regions = MaskRegions(torch.ones(1, 1, 4, dtype=torch.bool), torch.ones(1, 4, dtype=torch.int64))
    scores = (torch.arange(classes) % 2)[:, None, None].expand(2, classes, 1, 4)
    few = certify(scores, classes - 1, regions)
    assert sets_of(few.members) == [set(range(classes - 1))] * 2
    totals = scores.sum(dim=(2, 3))
    nobody = torch.zeros(2, classes, dtype=torch.bool)
    odd = set(range(1, classes, 2))
    assert sets_of(top_classes.filled(nobody, totals, len(odd))) == [odd] * 2
    assert sets_of(top_classes.filled(nobody, totals, len(odd) + 1)) == [odd | {0}] * 2
    assert sets_of(top_classes.filled(nobody, 0 * totals, 2)) == [{0, 1}] * 2


@pytest.mark.parametrize("classes", [3, 40])
def test_no_images_are_no_sets(classes: int) -> None:
    found = certify(torch.zeros(0, classes, 1, 7), 2, SINGLES)
    assert found.members.shape == found.proven.shape == (0, classes)


def test_scores_of_a_defense_and_of_ones_own() -> None:
    maps = random_maps(960, 8, 4, (6, 6), (0, 1))
    own = read_scores(maps, (0, 1))  # as `Defense.scores` makes them
    found = bagcert.certify_top(own, 2, "2x2", footprint=Footprint.centered(3, 1, (6, 6), (6, 6)))
    again = bagcert.certify_top(maps, 2, "2x2", 3)
    assert torch.equal(again.members, found.members) and torch.equal(again.proven, found.proven)
    with pytest.raises(UsageError, match="do not say what they see"):
        bagcert.certify_top(own, 2)


def test_what_is_refused() -> None:
    maps = random_maps(950, 2, 3, (1, 6), (0, 1))
    identity = Footprint.identity((1, 6))
    regions = identity.regions(parse_threat("1x1", (1, 6)))
    for best in (0, 3, True, 1.0):
        with pytest.raises(UsageError, match="best classes must be 1 to 2"):
            certify(maps, best, regions)  # type: ignore[arg-type]
    with pytest.raises(UsageError) as two:
        certify(maps, 1, identity.regions(parse_threat("2*1x1", (1, 6))))
    assert str(two.value) == "Sets of classes are proven against one patch, not two at once. Give another threat."
    assert len(certify(maps[:0], 1, regions)) == 0
    assert repr(certify(maps, 1, regions)).startswith("TopClasses(2 images, 2 classes given, ")
