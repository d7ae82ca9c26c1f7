"""Alerts about two patches at once: every pair of placements and every content, the definitions, and what must hold."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from bagcert.certify import certify_scores
from bagcert.rules import Detect, Rule, TwoMask, masking_rule, read_scores
from bagcert.rules.alerts import least_lead
from bagcert.threats import Footprint, parse_threat
from tests.rules import slow
from tests.rules.test_alerts import flags, rules
from tests.rules.test_oracle import random_maps
from tests.rules.test_properties import cases
from tests.rules.test_two_patches import UNEVEN, WORLDS, Integers, World, attacked, oracle

ABOVE = (0, 1, 3)


def alerted(maps: Integers, predicted: Integers, regions: NDArray[np.bool_], above: int) -> NDArray[np.bool_]:
    """Does another class lead outside some union of two regions? Of maps [b k cells] and regions [n cells]."""
    unions = np.array([one | two for one, two in combinations_with_replacement(regions, 2)])
    left = np.einsum("bkc,uc->bku", maps, (~unions).astype(np.int64))
    behind = left - np.take_along_axis(left, predicted[:, None, None], axis=1)
    found: NDArray[np.bool_] = (behind > above).any(axis=(1, 2))
    return found


def infer(which: Rule, maps: Integers, regions: NDArray[np.bool_]) -> Integers:
    plain: Integers = maps.sum(axis=2).argmax(axis=1)
    return plain if which.detects else oracle(maps, regions)


def fooled(which: Rule, world: World, scores: Tensor, above: int) -> bool:
    """Do any two patches, overlapping and coinciding ones too, change the class without an alert?"""
    masks = world.regions().masks()
    flat = masks.flatten(1).numpy()
    clean = infer(which, scores.flatten(1).numpy()[None], flat)[0]
    for one, two in combinations_with_replacement(masks, 2):
        maps = attacked(scores, one | two, world.attacked)
        predicted = infer(which, maps, flat)
        changed = predicted != clean
        if changed.any() and not alerted(maps[changed], predicted[changed], flat, above).all():
            return True
    return False


@pytest.mark.parametrize("world", [world for world in WORLDS if world.field == 1])
def test_whatever_the_two_patches_the_answer_or_an_alert(world: World) -> None:
    regions, maps = world.regions(), world.maps(300)
    outcomes = set()
    for above in (0, 1):
        for which in rules(above):
            alert, detectable = flags(which.certify(read_scores(maps, world.bounds), regions))
            for chosen in (detectable, ~detectable & ~alert):
                for image in chosen.nonzero().flatten()[:3].tolist():
                    broken = fooled(which, world, maps[image], above)
                    assert not (bool(detectable[image]) and broken), (which, maps[image])
                    outcomes.add((bool(detectable[image]), broken))
    assert {(True, False), (False, True)} <= outcomes


@pytest.mark.parametrize("world", [*WORLDS, UNEVEN])
def test_definitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, regions = world.maps(30), world.regions()
    patch = tuple(map(int, world.patch.split("x")))
    masks = slow.maximal(slow.dilated_regions(world.grid, patch, world.field))  # type: ignore[arg-type]
    unions = [one | two for one, two in combinations_with_replacement(masks, 2)]
    scores = read_scores(maps, world.bounds)
    for above in ABOVE:
        for which in rules(above):
            found = which.certify(scores, regions)
            alert, detectable = flags(found)
            for number, each in enumerate(maps.tolist()):
                mine = int(found.predicted[number])
                assert not which.detects or mine == slow.plain(each)
                least = min(slow.single_lead(each, mine, union) for union in unions)
                assert bool(alert[number]) == slow.alerted(each, mine, unions, above) == (least < -above)
                assert bool(detectable[number]) == (least > above)
                if which.detects:
                    assert found.lead is not None and int(found.lead[number]) == least - above
    monkeypatch.setitem(masking_rule.ROW_CELLS, "cpu", 1)
    whole, pieces = (flags(found), flags(which.certify(scores, regions)))
    assert all(torch.equal(*each) for each in zip(whole, pieces, strict=True)), "in small pieces"


def test_the_weakest_pair_and_class_have_the_lead() -> None:
    world = World((3, 5), "1x2", 1, 3, (0, 1, 3), (0, 3))
    maps, regions = world.maps(20), world.regions()
    found = Detect(1).certify(read_scores(maps, None), regions)
    assert found.lead is not None and found.weakest_region is not None and found.second_region is not None
    assert found.weakest_class is not None
    places = regions.placements.tolist()
    for image in range(20):
        one, two = (places.index(each[image].tolist()) for each in (found.weakest_region, found.second_region))
        union = regions.masks()[one] | regions.masks()[two]
        mine, rival = (maps[image, int(each[image])] for each in (found.predicted, found.weakest_class))
        assert int((mine - rival)[~union].sum()) - 1 == int(found.lead[image])


def test_leads_of_placements() -> None:
    """What is left with the second placement that takes most; of one rival alone, the others are out of the way."""
    world = WORLDS[2]  # of three classes
    maps, regions = world.maps(20), world.regions()
    scores, rule = read_scores(maps, world.bounds), Detect(2)
    found = rule.certify(scores, regions)
    assert found.lead is not None and found.weakest_class is not None
    leads = rule.leads(scores, found.predicted, regions)
    assert torch.equal(leads.amin(dim=(1, 2)), found.lead)
    single = rule.leads(scores, found.predicted, regions, found.weakest_class)
    everyone = torch.arange(20)
    assert torch.equal(single[everyone, found.weakest_class], leads[everyone, found.weakest_class])
    single[everyone, found.weakest_class] = torch.iinfo(torch.int64).max
    assert bool((single == torch.iinfo(torch.int64).max).all())
    assert torch.equal(least_lead(scores.values, found.predicted, regions).long(), found.lead + 2)


@settings(max_examples=20)
@given(cases(high=2), st.sampled_from(ABOVE), st.sampled_from([0, 1]))
def test_what_holds_on_every_map(case: tuple[Tensor, Footprint, str], above: int, slack: int) -> None:
    scores, footprint, patch = case

    def certify(rule: Rule | str, count: int = 2, exact: bool = True):  # type: ignore[no-untyped-def]
        threat = f"{count}*{patch}"
        return certify_scores(scores, threat, rule=rule, footprint=footprint, bounds=None, slack=slack, exact=exact)

    detect, pairs = (certify(each) for each in rules(above))
    for found, which in ((detect, Detect(above)), (pairs, TwoMask(alert_above=above))):
        alert, detectable = flags(found)
        assert not bool((alert & (detectable | found.certified)).any())
        decided = certify(which, exact=False)
        assert torch.equal(decided.predicted, found.predicted) and decided.lead is None
        for one, two in zip(flags(decided), (alert, detectable), strict=True):
            assert torch.equal(one, two)
        higher = flags(certify(which.alerting(above + 1)))
        assert bool((higher[0] <= alert).all()) and bool((higher[1] <= detectable).all())
    assert not bool(detect.certified.any()), "the class may change"
    plain = certify("two-mask")
    assert torch.equal(plain.predicted, pairs.predicted) and torch.equal(plain.certified, pairs.certified)
    if above == 0:
        assert bool((pairs.certified <= flags(pairs)[1]).all())
    single = certify(Detect(above), count=1)
    assert bool((flags(single)[0] <= flags(detect)[0]).all()), "a union may be one mask twice"
    assert bool((flags(detect)[1] <= flags(single)[1]).all())
    one_patch = certify("two-mask", count=1)
    same = one_patch.predicted == detect.predicted
    if above == 0:
        assert torch.equal(one_patch.certified[same], flags(detect)[1][same]), "the condition is the same"


@settings(max_examples=20)
@given(seed=st.integers(0, 2**16), slack=st.integers(1, 2))
def test_a_guard_band_holds_for_all_scores_inside_it(seed: int, slack: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    maps = torch.randint(0, 6, (6, 2, 3, 6), generator=draw)
    maps[:, 1] += torch.randint(0, 5, (6, 1, 1), generator=draw)
    regions = Footprint.identity((3, 6)).regions(parse_threat("2*1x1", (3, 6))).maximal()
    moved = maps + torch.randint(-slack, slack + 1, maps.shape, generator=draw)
    for which in rules(2):
        found, other = (
            which.certify(scores, regions)
            for scores in (read_scores(maps, None, slack=slack), read_scores(moved, None))
        )
        safe = flags(found)[1]
        same = other.predicted == found.predicted
        assert bool((flags(other)[1] | ~same)[safe].all())
        assert torch.equal(flags(found)[0], flags(which.certify(read_scores(maps, None), regions))[0])
        assert not which.detects or bool(same[safe].all())


def test_masks_for_two_patches_prove_smaller_threats() -> None:
    maps, footprint = random_maps(0, 60, 2, (1, 12), (0, 1)), Footprint.identity((1, 12))
    two, one, small = (footprint.regions(parse_threat(text, (1, 12))).maximal() for text in ("2*1x2", "1x2", "2*1x1"))
    scores = read_scores(maps)
    for which in rules(1):
        built = which.built_for(two)
        whole = built.certify(scores, two)
        assert 0 < int(flags(whole)[1].sum()) < 60
        for smaller in (one, small):
            found = built.certify(scores, smaller)
            assert torch.equal(found.predicted, whole.predicted)
            assert all(torch.equal(*each) for each in zip(flags(found), flags(whole), strict=True))


@pytest.mark.parametrize("above", [2**31, 2**53])
def test_a_threshold_beyond_every_sum_raises_no_alert_and_proves_nothing(above: int) -> None:
    maps = random_maps(0, 10, 3, (5, 5), (0, 1))
    for which in rules(above):
        found = certify_scores(maps, "2*1x1", 3, rule=which)
        assert not flags(found)[0].any() and not flags(found)[1].any()


def test_many_classes() -> None:
    maps = random_maps(3, 12, 30, (4, 5), (0, 1, 2))
    regions = Footprint.identity((4, 5)).regions(parse_threat("2*1x2", (4, 5))).maximal()
    flat = regions.masks().flatten(1).numpy()
    found = Detect(1).certify(read_scores(maps, None), regions, exact=False)
    expected = alerted(maps.flatten(2).numpy(), found.predicted.numpy(), flat, 1)
    assert flags(found)[0].tolist() == expected.tolist() and 0 < int(expected.sum()) < 12
