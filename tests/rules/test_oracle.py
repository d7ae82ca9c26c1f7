"""Brute force: every attacked score map of small grids, against every rule's own inference."""

from collections.abc import Callable
from fractions import Fraction

import pytest
import torch
from torch import Tensor

from bagcert.certify import certify_scores
from bagcert.rules import (
    EveryRegion,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    capped_sum,
    read_scores,
    trimmed_sum,
)
from bagcert.rules.rule import CHUNK_CELLS
from bagcert.threats import Footprint, Layer, parse_threat
from tests.rules import slow
from tests.rules.slow import Inference, Region

# Grid, patch, receptive field, classes, scores; small enough to list every attacked map of every placement.
SETTINGS = [
    ((1, 6), (1, 1), 1, 3, (0, 1)),
    ((1, 7), (1, 2), 1, 2, (0, 1)),
    ((1, 8), (1, 1), 3, 2, (0, 1)),
    ((2, 5), (2, 1), 1, 2, (0, 1)),
    ((1, 8), (1, 1), 3, 3, (0, 1)),
    ((2, 3), (1, 1), 1, 3, (0, 1, 2)),
    ((3, 3), (2, 1), 1, 2, (0, 1, 3)),
    ((1, 5), (1, 1), 1, 2, (0, 1, 5)),
    ((2, 2), (2, 2), 1, 2, (0, 1)),  # the patch is the image
]


def rules(masks: list[Region]) -> list[tuple[Rule, Inference]]:
    def thirds(threshold: Fraction) -> Inference:
        return lambda scores: slow.masked(scores, masks, threshold)

    def trimmed(values: list[int]) -> int:
        return sum(sorted(values)[1 : max(1, len(values) - 1)])

    return [
        (LargestRegion(), slow.plain),
        (EveryRegion(), slow.plain),
        (Monotone(capped_sum(4)), lambda scores: slow.aggregated(scores, lambda values: min(4, sum(values)))),
        (Monotone(trimmed_sum(1)), lambda scores: slow.aggregated(scores, trimmed)),
        (Masked(), thirds(Fraction(0))),
        (Masked("1/3"), thirds(Fraction(1, 3))),
        (Masked("3/5"), thirds(Fraction(3, 5))),
        (TwoMask(), lambda scores: slow.two_mask(scores, masks)),
    ]


def random_maps(setting: int, count: int, classes: int, grid: tuple[int, int], values: tuple[int, ...]) -> Tensor:
    """Maps with a favored class of every strength, so that certified and uncertified ones both come up."""
    draw = torch.Generator().manual_seed(setting)
    levels = torch.tensor(values)
    shape = (count, classes, *grid)
    maps = levels[torch.randint(len(values), shape, generator=draw)]
    favored = torch.randint(classes, (count,), generator=draw)
    strength = torch.rand(count, 1, 1, generator=draw)
    raised = torch.rand(count, *grid, generator=draw) < strength
    lowered = torch.rand(shape, generator=draw) < strength[:, None]
    maps = torch.where(lowered, levels[0], maps)
    number = torch.arange(count)
    maps[number, favored] = torch.where(raised, levels[-1], maps[number, favored])
    return maps


@pytest.mark.slow
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_no_attacked_map_changes_a_certified_prediction(setting: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    regions = slow.dilated_regions(grid, patch, field)
    masks = slow.maximal(regions)
    bounds = (min(values), max(values))
    maps = random_maps(setting, 40, classes, grid, values)
    for rule, inference in rules(masks):
        certificate = certify_scores(maps, f"{patch[0]}x{patch[1]}", field, rule=rule, bounds=bounds)
        decided = certify_scores(maps, f"{patch[0]}x{patch[1]}", field, rule=rule, bounds=bounds, exact=False)
        assert torch.equal(certificate.certified, decided.certified)
        assert torch.equal(certificate.predicted, decided.predicted)
        if patch != grid and rule.name == "two-mask":  # it certifies whatever the others do, so some must be there
            assert 0 < certificate.certified.sum() < len(maps)
        for number, scores in enumerate(maps.tolist()):
            predicted = int(certificate.predicted[number])
            assert predicted == inference(scores), rule
            if certificate.certified[number]:
                for region in regions:
                    for attacked in slow.attacked_maps(scores, region, values):
                        assert inference(attacked) == predicted, (rule, scores, attacked)


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_leads_equal_the_definitions(setting: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    regions = slow.dilated_regions(grid, patch, field)
    masks = slow.maximal(regions)
    bounds = (min(values), max(values))
    width = bounds[1] - bounds[0]
    maps = random_maps(100 + setting, 40, classes, grid, values)
    leads: list[tuple[Rule, Callable[[slow.Map, int], int]]] = [
        (LargestRegion(), lambda scores, own: slow.largest_lead(scores, own, regions, width)),
        (EveryRegion(), lambda scores, own: slow.region_lead(scores, own, regions, width)),
        (TwoMask(), lambda scores, own: slow.pair_lead(scores, own, masks)),
    ]
    for rule, lead in leads:
        certificate = certify_scores(maps, f"{patch[0]}x{patch[1]}", field, rule=rule, bounds=bounds)
        assert certificate.lead is not None
        expected = [lead(s, int(own)) for s, own in zip(maps.tolist(), certificate.predicted, strict=True)]
        assert certificate.lead.tolist() == expected
        assert torch.equal(certificate.certified, certificate.lead > 0)


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_every_region_is_exact_up_to_ties(setting: int) -> None:
    """Uncertified means: at some placement some map lets another class reach at least the predicted one's sum."""
    grid, patch, field, classes, values = SETTINGS[setting]
    low, high = min(values), max(values)
    regions = slow.dilated_regions(grid, patch, field)
    maps = random_maps(200 + setting, 30, classes, grid, values)
    certificate = certify_scores(maps, f"{patch[0]}x{patch[1]}", field, rule="every-region", bounds=(low, high))
    for number, scores in enumerate(maps.tolist()):
        own = int(certificate.predicted[number])
        reached = False
        for region in regions:
            for rival in set(range(classes)) - {own}:
                attacked = [[list(row) for row in label] for label in scores]
                for i, j in region:
                    attacked[own][i][j], attacked[rival][i][j] = low, high
                reached |= slow.total(attacked, rival) >= slow.total(attacked, own)
        assert reached != bool(certificate.certified[number])


@pytest.mark.slow
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_worst_ranks_are_those_of_the_worst_maps(setting: int) -> None:
    """For any class, not the predicted one only: over every attacked map, how many rivals reach its sum at once."""
    grid, patch, field, classes, values = SETTINGS[setting]
    regions = slow.dilated_regions(grid, patch, field)
    maps = random_maps(300 + setting, 20, classes, grid, values)
    threat = parse_threat(f"{patch[0]}x{patch[1]}", grid)
    footprint = Footprint.of_layers([Layer(field, 1, 1, field // 2)], grid).regions(threat).maximal()
    scores = read_scores(maps, (min(values), max(values)))
    labels = torch.arange(len(maps)) % classes
    ranks = EveryRegion().worst_rank(scores, labels, footprint)
    for number, clean in enumerate(maps.tolist()):
        own, worst = int(labels[number]), 1
        for region in regions:
            for attacked in slow.attacked_maps(clean, region, values):
                sums = [slow.total(attacked, label) for label in range(classes)]
                worst = max(worst, sum(rival >= sums[own] for rival in sums))
        assert int(ranks[number]) == worst
    certificate = EveryRegion().certify(scores, footprint)
    tops = EveryRegion().worst_rank(scores, certificate.predicted, footprint)
    assert torch.equal(tops == 1, certificate.certified)


def test_worst_ranks_of_many_images_are_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = random_maps(400, 30, 5, (6, 6), (0, 1))
    regions = Footprint.of_layers([Layer(1, 1, 1, 0)], (6, 6)).regions(parse_threat("1x1", (6, 6))).maximal()
    labels = torch.arange(30) % 5
    whole = EveryRegion().worst_rank(read_scores(maps, (0, 1)), labels, regions)
    monkeypatch.setitem(CHUNK_CELLS, "cpu", 1)
    assert torch.equal(EveryRegion().worst_rank(read_scores(maps, (0, 1)), labels, regions), whole)
    assert len(set(whole.tolist())) > 2


def test_masked_lead_equals_the_lemma() -> None:
    grid, patch, field, threshold = (1, 7), (1, 1), 3, Fraction(1, 3)
    regions = slow.maximal(slow.dilated_regions(grid, patch, field))
    maps = random_maps(7, 60, 3, grid, (0, 1, 2))
    certificate = certify_scores(maps, "1x1", field, rule=Masked(threshold), bounds=(0, 2))
    assert certificate.lead is not None
    for number, scores in enumerate(maps.tolist()):
        own = int(certificate.predicted[number])
        leads = []
        for attacked in regions:
            clean = slow.total(scores, own, attacked)
            lost = [
                clean - slow.total(scores, own, attacked | mask)
                for mask in regions
                if mask & attacked or clean - slow.total(scores, own, attacked | mask) > threshold * clean
            ]
            for rival in set(range(3)) - {own}:
                most = slow.total(scores, rival, attacked) / (1 - threshold)
                leads.append(clean - max(lost, default=0) - most.__floor__())
        assert int(certificate.lead[number]) == min(leads)
