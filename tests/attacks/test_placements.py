"""The first place to attack is the certificate's own weakest one."""

import pytest
import torch

from bagcert.attacks.placements import Placements, companions, first_where_steep, paper_leads, weakest_placements
from bagcert.data import Batch
from bagcert.defense import Defense
from bagcert.rules import EveryRegion, Masked, Rule, TwoMask, read_scores
from bagcert.scorers.residual import ResidualScorer
from bagcert.scorers.views import HiddenRectangles
from bagcert.threats import Footprint, Layer, parse_threat


@pytest.mark.parametrize("rule", [EveryRegion(), Masked(), TwoMask()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("patch", ["2x2", "1x3,3x1"])
def test_the_least_lead_is_that_of_the_certificate(
    rule: Rule, patch: str, votes: ResidualScorer, digits: Batch
) -> None:
    defense = Defense.build(votes, rule, patch, tuple("0123456789"))
    scores = defense.scores(digits.images)
    certificate = defense.certify_integers(scores)
    assert certificate.weakest_class is not None and certificate.lead is not None
    regions = Placements.of(defense.threat, votes.footprint, every=False).regions
    leads = defense.rule.leads(scores, certificate.predicted, regions, certificate.weakest_class)
    assert torch.equal(leads.amin(dim=(1, 2)).long(), certificate.lead)
    place, rival = weakest_placements(leads, 5)
    assert place.shape == rival.shape == (len(digits.images), 5)
    image = torch.arange(len(place))[:, None]
    chosen = leads[image, rival, place]
    assert torch.equal(chosen, chosen.sort(dim=1).values) and torch.equal(chosen[:, 0].long(), certificate.lead)


def test_the_papers_place_leaves_out_the_size_of_the_region() -> None:
    """Five votes for class 0 in a row, the fourth also for class 1: Δ = 1 1 1 0 1.

    A patch reaches 2 votes at an end, else 3. Outside R(l) Δ adds up to 2 1 2 2 3: the first place and the third are
    equal to the paper. Condition 3.2 subtracts 2 3 3 3 2, and the third is the weaker.
    """
    footprint = Footprint.of_layers([Layer((1, 3), padding=(0, 1))], (1, 5))
    threat = parse_threat("1x1", (1, 5))
    every = Placements.of(threat, footprint, every=True).regions
    assert len(every) == 5 and Placements.of(threat, footprint, every=False).regions.placements[:, 1].tolist() == [
        1,
        2,
        3,
    ]
    votes = torch.tensor([[[[1, 1, 1, 1, 1]], [[0, 0, 0, 1, 0]]]])
    scores, predicted = read_scores(votes), torch.tensor([0])
    paper = paper_leads(scores, predicted, every)[:, 1]
    proof = EveryRegion().leads(scores, predicted, every)[:, 1]
    assert paper.tolist() == [[2, 1, 2, 2, 3]]
    assert proof.tolist() == [[0, -2, -1, -1, 1]]


def test_companions_take_what_the_first_leaves() -> None:
    """Δ = 3 1 0 2 5: from the place of the 1 on, the 5 is taken next, then the 3."""
    regions = Footprint.identity((1, 5)).regions(parse_threat("3*1x1", (1, 5)))
    scores = read_scores(torch.tensor([[[[3, 1, 0, 2, 5]], [[0, 0, 0, 0, 0]]]]), (0, 9))
    one, none = torch.tensor([[1, 4]]), torch.tensor([[1, 1]])
    assert companions(scores, torch.tensor([0]), none, one, regions).tolist() == [[[1, 4, 0], [4, 0, 3]]]


def test_pixels_of_rectangles_and_of_regions() -> None:
    footprint = Footprint.identity((4, 5))
    places = Placements.of(parse_threat("2x3", (4, 5)), footprint, every=True)
    index = torch.arange(len(places.regions))
    assert torch.equal(places.pixels(index, (4, 5)), places.regions.masks(index))
    masks = torch.zeros(3, 4, 5, dtype=torch.bool)
    masks[0, 0, 0] = masks[1, 0, :2] = masks[2, 3, 4] = True
    kept = Placements.of(parse_threat(masks, (4, 5)), footprint, every=False)
    assert torch.equal(kept.pixels(torch.arange(2), (4, 5)), masks[1:]), "the first lies inside the second"


def test_equal_leads_are_ordered_by_gain() -> None:
    most = torch.iinfo(torch.int32).max
    leads = torch.tensor([[[3, 3, 1, 3], [most, most, most, most]]], dtype=torch.int32)
    ordered = first_where_steep(leads, torch.tensor([[0.1, 0.3, 0.0, 0.2]]))
    place, rival = weakest_placements(ordered, 4)
    assert place.tolist() == [[2, 1, 3, 0]] and rival.tolist() == [[0, 0, 0, 0]]
    large = torch.full((1, 2, 900), 2**28, dtype=torch.int32)
    assert int(first_where_steep(large, torch.zeros(1, 900)).min()) == 2**28 * 900


def test_sums_over_placements_are_those_over_their_pixels() -> None:
    threat = parse_threat("2x3", (7, 9))
    placements = Placements.of(threat, HiddenRectangles.covering((2, 3), (7, 9), 3).footprint, every=True)
    maps = torch.randn(2, 7, 9, generator=torch.Generator().manual_seed(0))
    expected = maps.double().flatten(1) @ threat.pixels().flatten(1).T.double()
    assert torch.allclose(placements.sums(maps).double(), expected)


def test_fewer_placements_still_have_every_maximal_region() -> None:
    footprint = HiddenRectangles.covering((2, 3), (20, 30), 3).footprint
    threat = parse_threat("2x3", (20, 30))
    whole = Placements.of(threat, footprint, every=True)
    few = whole.thinned(40)
    assert len(few.regions) < len(whole.regions) / 8 and whole.thinned(10**6) is whole
    kept = {tuple(row) for row in few.regions.placements.tolist()}
    assert kept >= {tuple(row) for row in whole.regions.maximal().placements.tolist()}
    every = {
        tuple(row): mask for row, mask in zip(whole.regions.placements.tolist(), whole.regions.masks(), strict=True)
    }
    for row, mask in zip(few.regions.placements.tolist(), few.regions.masks(), strict=True):
        assert torch.equal(every[tuple(row)], mask)
