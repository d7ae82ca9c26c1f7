"""Leads, certificates and weakest places against the definitions: guard bands, negative scores, larger masks."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from bagcert.certify import certify_scores
from bagcert.rules import EveryRegion, LargestRegion, Masked, Monotone, Rule, TwoMask, masking_rule, rule, trimmed_sum
from bagcert.threats import Footprint, parse_threat, regions
from tests.rules import slow
from tests.rules.slow import Map, Region
from tests.rules.test_oracle import random_maps

Grid = tuple[int, int]
# Grid, patch, receptive field, classes, scores.
SETTINGS: list[tuple[Grid, Grid, int, int, tuple[int, ...]]] = [
    ((1, 9), (1, 1), 1, 3, (0, 1)),
    ((3, 4), (1, 2), 1, 4, (0, 1)),
    ((4, 4), (1, 1), 3, 2, (0, 1)),
    ((1, 9), (1, 1), 1, 2, (0, 1, 3)),
    ((2, 6), (1, 1), 3, 3, (0, 2, 7)),
    ((3, 5), (2, 1), 1, 3, (1, 2, 4)),
]
NEGATIVE: list[tuple[Grid, Grid, int, int, tuple[int, ...]]] = [
    ((1, 8), (1, 1), 1, 3, (-2, 0, 5)),
    ((3, 4), (1, 1), 1, 2, (-7, -3)),
]
THRESHOLDS = [Fraction(0), Fraction(1, 10), Fraction(1, 3), Fraction(3, 5)]


def trimmed(values: list[int]) -> int:
    return sum(sorted(values)[1 : max(1, len(values) - 1)])


def definitions(
    regions: list[Region], bounds: tuple[int, int], every: bool
) -> list[tuple[Rule, Callable[[Map, int], int]]]:
    """Each rule with the lead that its certificate is defined by."""
    masks, width = slow.maximal(regions), bounds[1] - bounds[0]

    def masked(threshold: Fraction) -> Callable[[Map, int], int]:
        return lambda scores, own: slow.masked_lead(scores, own, masks, masks, threshold, every)

    rules: list[tuple[Rule, Callable[[Map, int], int]]] = [
        (LargestRegion(), lambda scores, own: slow.largest_lead(scores, own, regions, width)),
        (EveryRegion(), lambda scores, own: slow.region_lead(scores, own, regions, width)),
        (Monotone(trimmed_sum(1)), lambda scores, own: slow.monotone_lead(scores, own, regions, bounds, trimmed)),
        (TwoMask(), lambda scores, own: slow.pair_lead(scores, own, masks)),
    ]
    if bounds[0] >= 0:
        rules += [(Masked(threshold), masked(threshold)) for threshold in THRESHOLDS]
    return rules


@pytest.mark.parametrize("guard", ["none", "uncertain", "slack"])
@pytest.mark.parametrize("setting", range(len(SETTINGS) + len(NEGATIVE)))
def test_leads_equal_the_definitions(setting: int, guard: str) -> None:
    grid, patch, field, classes, values = (SETTINGS + NEGATIVE)[setting]
    bounds = (min(values), max(values))
    if guard == "uncertain" and bounds != (0, 1):
        return
    maps = random_maps(300 + setting, 40, classes, grid, values)
    doubt = torch.rand(maps.shape, generator=torch.Generator().manual_seed(setting)) < 0.1
    slack = 1 if guard == "slack" else 0
    low, high = maps - slack, maps + slack
    if guard == "uncertain":
        low, high = maps.masked_fill(doubt, 0), maps.masked_fill(doubt, 1)
    regions = slow.dilated_regions(grid, patch, field)
    if guard == "slack":  # a cell in doubt may cost more than a cell of the patch, so smaller regions count for more
        regions = slow.maximal(regions)
    for used, lead in definitions(regions, bounds, every=guard != "none"):
        certificate, decided = (
            certify_scores(
                maps,
                f"{patch[0]}x{patch[1]}",
                field,
                rule=used,
                bounds=bounds,
                uncertain=doubt if guard == "uncertain" else None,
                slack=slack,
                exact=exact,
            )
            for exact in (True, False)
        )
        assert certificate.lead is not None
        expected = [
            lead(slow.guarded(least, most, int(own)), int(own))
            for least, most, own in zip(low.tolist(), high.tolist(), certificate.predicted, strict=True)
        ]
        assert certificate.lead.tolist() == expected, used
        assert certificate.certified.tolist() == [number > 0 for number in expected], used
        assert torch.equal(decided.certified, certificate.certified), used
        assert torch.equal(decided.predicted, certificate.predicted), used


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grid", "outer", "inner"),
    [
        ((4, 5), "2x2,1x3", "1x1"),
        ((4, 5), "2x2,1x3", "1x2"),
        ((4, 5), "2x2,1x3", "2x1,1x2"),
        ((4, 5), "2x2,1x3", "2x2"),
        ((1, 11), "1x3", "1x1"),
        ((1, 11), "1x3", "1x2"),
    ],
)
@pytest.mark.parametrize("threshold", [None, *THRESHOLDS])
def test_smaller_threats_under_larger_masks(grid: Grid, outer: str, inner: str, threshold: Fraction | None) -> None:
    footprint = Footprint.identity(grid)
    masks = footprint.regions(parse_threat(outer, grid)).maximal()
    used: Rule = TwoMask(masks) if threshold is None else Masked(threshold, masks)
    maps = random_maps(7, 50, 3, grid, (0, 1, 2))
    certificate, decided = (
        certify_scores(maps, inner, rule=used, footprint=footprint, bounds=(0, 2), exact=exact)
        for exact in (True, False)
    )
    regions = footprint.regions(parse_threat(inner, grid)).maximal()
    sets = [[frozenset(map(tuple, mask.nonzero().tolist())) for mask in each.masks()] for each in (regions, masks)]
    own = certificate.predicted.tolist()
    if threshold is None:
        assert own == [slow.two_mask(scores, sets[1]) for scores in maps.tolist()]
        leads = [
            slow.covered_lead(scores, label, sets[0], sets[1]) for scores, label in zip(maps.tolist(), own, strict=True)
        ]
    else:
        assert own == [slow.masked(scores, sets[1], threshold) for scores in maps.tolist()]
        leads = [
            slow.masked_lead(scores, label, sets[0], sets[1], threshold)
            for scores, label in zip(maps.tolist(), own, strict=True)
        ]
    assert certificate.lead is not None and certificate.lead.tolist() == leads
    assert torch.equal(certificate.certified, certificate.lead > 0)
    assert torch.equal(decided.certified, certificate.certified)
    assert 0 < int(certificate.certified.sum()) < len(maps)
    assert_weakest_region(certificate.weakest_region, leads, regions.placements, maps, own, sets, threshold)


def assert_weakest_region(
    places: Tensor | None,
    leads: list[int],
    placements: Tensor,
    maps: Tensor,
    own: list[int],
    sets: list[list[Region]],
    threshold: Fraction | None,
) -> None:
    """Alone, the region that is named has the whole lead."""
    assert places is not None
    for place, lead, scores, label in zip(places.tolist(), leads, maps.tolist(), own, strict=True):
        region = sets[0][placements.tolist().index(place)]
        if threshold is None:
            assert slow.covered_lead(scores, label, [region], sets[1]) == lead
        else:
            assert slow.masked_lead(scores, label, [region], sets[1], threshold) == lead


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_weakest_places_have_the_lead(setting: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    bounds = (min(values), max(values))
    maps = random_maps(400 + setting, 40, classes, grid, values)
    regions = slow.maximal(slow.dilated_regions(grid, patch, field))
    table = Footprint.centered(field, 1, grid, grid).regions(parse_threat(f"{patch[0]}x{patch[1]}", grid)).maximal()
    for used, lead in definitions(regions, bounds, every=False):
        certificate = certify_scores(maps, f"{patch[0]}x{patch[1]}", field, rule=used, bounds=bounds)
        assert certificate.lead is not None and certificate.weakest_region is not None
        assert certificate.weakest_class is not None
        assert (certificate.second_region is not None) == (used.name == "two-mask")
        for part in (certificate.predicted, certificate.lead, certificate.weakest_region, certificate.weakest_class):
            assert part.dtype == torch.int64, used
        for number, scores in enumerate(maps.tolist()):
            own, rival = int(certificate.predicted[number]), int(certificate.weakest_class[number])
            alone = [scores[min(own, rival)], scores[max(own, rival)]]
            assert own != rival
            assert lead(alone, int(own > rival)) == int(certificate.lead[number]), used
            region = regions[table.placements.tolist().index(certificate.weakest_region[number].tolist())]
            if used.name in ("every-region", "monotone", "masked"):
                masks = slow.maximal(regions)
                single = dict(
                    zip(
                        ("every-region", "monotone"),
                        (
                            slow.region_lead(scores, own, [region], bounds[1] - bounds[0]),
                            slow.monotone_lead(scores, own, [region], bounds, trimmed),
                        ),
                        strict=True,
                    )
                )
                if isinstance(used, Masked):
                    single["masked"] = slow.masked_lead(scores, own, [region], masks, Fraction(used.threshold))
                assert single[used.name] == int(certificate.lead[number]), used
            elif used.name == "largest-region":
                assert len(region) == max(map(len, regions))


def test_a_weak_mask_does_no_harm_where_another_holds_the_patch() -> None:
    """Two masks together take all, but every single cell lies in a mask that leaves three whatever is added."""
    maps = torch.tensor([[[[0, 0, 3, 3, 0, 3, 3, 0, 0]], [[0] * 9]]])
    footprint = Footprint.identity((1, 9))
    used = TwoMask(footprint.regions(parse_threat("1x2", (1, 9))).maximal())
    for patch, lead in (("1x1", 3), ("1x2", 0)):
        certificate = certify_scores(maps, patch, rule=used, footprint=footprint, bounds=(0, 3))
        assert certificate.lead is not None and certificate.lead.tolist() == [lead]
        decided = certify_scores(maps, patch, rule=used, footprint=footprint, bounds=(0, 3), exact=False)
        assert certificate.certified.tolist() == decided.certified.tolist() == [lead > 0]


def test_a_mask_that_takes_nothing_still_meets_a_second_one() -> None:
    """The last mask alone leaves a lead of two; the mask of the three votes, added, leaves the rival's one."""
    maps = torch.tensor([[[[0, 0, 3, 0, 0, 0, 0]], [[0, 0, 0, 1, 0, 0, 0]]]])
    footprint = Footprint.identity((1, 7))
    used = TwoMask(footprint.regions(parse_threat("1x2", (1, 7))).maximal())
    certificate = certify_scores(maps, "1x1", rule=used, footprint=footprint, bounds=(0, 3))
    assert certificate.predicted.tolist() == [0]
    assert certificate.lead is not None and certificate.lead.tolist() == [-1]


def test_a_lead_of_one_is_enough() -> None:
    """The only vote lies outside both regions that the attacker may paint."""
    pixels = torch.tensor([[[True, False, False]], [[False, True, False]]])
    maps = torch.tensor([[[[0, 0, 0]], [[0, 0, 1]]]])
    for used in (LargestRegion(), EveryRegion(), Monotone(trimmed_sum(0)), Masked(), TwoMask()):
        for exact in (True, False):
            certificate = certify_scores(maps, pixels, 1, rule=used, exact=exact)
            lead = {"largest-region": -1, "every-region": 0, "monotone": 0}.get(used.name, 1)
            assert certificate.certified.tolist() == [lead > 0], used
            assert certificate.lead is None or certificate.lead.tolist() == [lead], used


def test_all_scores_may_be_shifted() -> None:
    """Masks look at differences only; also where the prediction is not the class with the largest sum."""
    maps = random_maps(8, 400, 3, (1, 7), (0, 1, 5))
    certificate, shifted = (certify_scores(maps - down, "1x2", 1, bounds=None) for down in (0, 20))
    assert bool((certificate.predicted != maps.sum(dim=(2, 3)).argmax(dim=1)).any())
    for name in ("predicted", "certified", "lead", "weakest_region", "second_region", "weakest_class"):
        assert torch.equal(getattr(certificate, name), getattr(shifted, name)), name


def test_two_masks_that_cover_the_whole_map_leave_a_tie() -> None:
    """One mask leaves a lead of one, the second takes just that."""
    maps = torch.tensor([[[[1, 1]], [[0, 0]]]])
    for exact in (True, False):
        assert certify_scores(maps, "1x1", 1, exact=exact).certified.tolist() == [False]
    wider = torch.tensor([[[[1, 1, 1]], [[0, 0, 0]]]])
    assert certify_scores(wider, "1x1", 1, exact=False).certified.tolist() == [True]


def test_of_equally_weak_regions_the_first_is_named() -> None:
    """Every placement is alike on a map of one vote everywhere."""
    maps = torch.zeros(1, 2, 1, 6, dtype=torch.int64)
    maps[:, 1] = 1
    for used in (LargestRegion(), EveryRegion(), Monotone(trimmed_sum(0)), Masked(), TwoMask()):
        certificate = certify_scores(maps, "1x1", 1, rule=used)
        assert certificate.weakest_region is not None and certificate.weakest_class is not None
        assert certificate.weakest_region.tolist() == [[0, 0, 1, 1]], used
        assert certificate.weakest_class.tolist() == [0], used


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 70, 333])
def test_pieces_of_any_size_give_the_same_answers(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = (4, 5)
    maps = random_maps(9, 12, 3, grid, (0, 1))
    wrapped = Footprint.ablation((2, 2), grid)
    shapes = Footprint.identity(grid)
    masks = shapes.regions(parse_threat("2x2", grid)).maximal()
    used = [LargestRegion(), EveryRegion(), Monotone(trimmed_sum(1)), Masked(), Masked("1/3"), TwoMask()]
    cases = [(one, footprint, "1x2,2x1") for one in used for footprint in (wrapped, shapes)]
    cases += [(TwoMask(masks), shapes, "1x2"), (Masked("1/3", masks), shapes, "1x2")]
    whole = [certify_scores(maps, patch, rule=one, footprint=footprint) for one, footprint, patch in cases]
    monkeypatch.setitem(rule.CHUNK_CELLS, "cpu", cells)
    monkeypatch.setitem(masking_rule.ROW_CELLS, "cpu", cells)
    monkeypatch.setattr(regions, "CACHED_CELLS", cells)
    for (one, footprint, patch), expected in zip(cases, whole, strict=True):
        for exact in (True, False):
            found = certify_scores(maps, patch, rule=one, footprint=footprint, exact=exact)
            names = ["predicted", "certified"]
            if found.lead is not None:
                names += ["lead", "weakest_region", "weakest_class"]
            for name in names:
                assert torch.equal(getattr(found, name), getattr(expected, name)), (one, name)
