"""Maps with different footprints, one row of each in turn, against every attacked map and against the definitions."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from bagcert.certify import certify_scores
from bagcert.rules import EveryRegion, LargestRegion, Masked, Rule, TwoMask
from bagcert.threats import Footprint
from tests.rules import slow
from tests.rules.slow import Inference, Region
from tests.rules.test_oracle import random_maps

# Size of the images, patch, receptive field of each map, classes, scores.
SETTINGS = [
    ((1, 6), (1, 1), (3, 1), 2, (0, 1)),
    ((1, 5), (1, 2), (1, 1), 2, (0, 1)),
    ((2, 3), (1, 1), (1, 1), 2, (0, 1, 2)),
    ((1, 6), (1, 1), (1, 1), 2, (-1, 2)),
]


def in_turn(size: tuple[int, int], patch: tuple[int, int], fields: tuple[int, ...]) -> list[Region]:
    """R(l) of every placement: what it reaches in each map, whose row i is row i * maps + its number."""
    alone = [slow.dilated_regions(size, patch, field) for field in fields]
    return [
        frozenset((i * len(fields) + number, j) for number, region in enumerate(each) for i, j in region)
        for each in zip(*alone, strict=True)
    ]


def footprint_of(size: tuple[int, int], fields: tuple[int, ...]) -> Footprint:
    return Footprint.interleaved([Footprint.centered(field, 1, size, size) for field in fields])


@pytest.mark.slow
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_no_attacked_maps_change_a_certified_prediction(setting: int) -> None:
    size, patch, fields, classes, values = SETTINGS[setting]
    footprint, regions = footprint_of(size, fields), in_turn(size, patch, fields)
    masks, bounds = slow.maximal(regions), (min(values), max(values))
    maps = random_maps(500 + setting, 10, classes, footprint.grid, values)
    rules: list[tuple[Rule, Inference]] = [
        (LargestRegion(), slow.plain),
        (EveryRegion(), slow.plain),
        (TwoMask(), lambda scores: slow.two_mask(scores, masks)),
    ]
    if bounds[0] >= 0:
        rules.append((Masked("1/3"), lambda scores: slow.masked(scores, masks, Fraction(1, 3))))
    for rule, inference in rules:
        found = certify_scores(maps, f"{patch[0]}x{patch[1]}", rule=rule, footprint=footprint, bounds=bounds)
        if rule.name == "two-mask":
            assert 0 < int(found.certified.sum()) < len(maps)
        for number, scores in enumerate(maps.tolist()):
            predicted = int(found.predicted[number])
            assert predicted == inference(scores), rule
            if found.certified[number]:
                for region in regions:
                    for attacked in slow.attacked_maps(scores, region, values):
                        assert inference(attacked) == predicted, (rule, scores, attacked)


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_leads_equal_the_definitions(setting: int) -> None:
    size, patch, fields, classes, values = SETTINGS[setting]
    footprint, regions = footprint_of(size, fields), in_turn(size, patch, fields)
    masks, bounds = slow.maximal(regions), (min(values), max(values))
    width = bounds[1] - bounds[0]
    maps = random_maps(600 + setting, 40, classes, footprint.grid, values)
    leads: list[tuple[Rule, Callable[[slow.Map, int], int]]] = [
        (LargestRegion(), lambda scores, own: slow.largest_lead(scores, own, regions, width)),
        (EveryRegion(), lambda scores, own: slow.region_lead(scores, own, regions, width)),
        (TwoMask(), lambda scores, own: slow.pair_lead(scores, own, masks)),
    ]
    for rule, lead in leads:
        for exact in (True, False):
            found = certify_scores(
                maps, f"{patch[0]}x{patch[1]}", rule=rule, footprint=footprint, bounds=bounds, exact=exact
            )
            expected = [lead(s, int(own)) for s, own in zip(maps.tolist(), found.predicted, strict=True)]
            assert found.lead is None or found.lead.tolist() == expected
            assert found.certified.tolist() == [number > 0 for number in expected]
