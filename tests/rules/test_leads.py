"""What each placement leaves of a proof, by the definition; and the largest square that is certified."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rules import (
    RULES,
    Detect,
    EveryRegion,
    IntegerScores,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    Unanimous,
    find_rule,
    read_scores,
    rules_for,
    trimmed_sum,
)
from bagcert.rules.largest_square import largest_square, squares
from bagcert.rules.masking_rule import covered, second_masks
from bagcert.threats import Footprint, Regions, parse_threat
from bagcert.threats.regions import MaskRegions

FOOTPRINT = Footprint.centered(3, 1, (5, 6), (5, 6))
BOUNDS = (0, 4)
CPU = torch.device("cpu")


def regions_of(patch: str) -> Regions:
    return FOOTPRINT.regions(parse_threat(patch, (5, 6))).maximal()


def some_scores(seed: int, slack: int = 0, images: int = 6) -> IntegerScores:
    """Class 0 is ahead, by more and more from image to image, so that some squares are certified."""
    draw = torch.Generator().manual_seed(seed)
    maps = torch.randint(0, 3, (images, 3, 5, 6), generator=draw)
    ahead = torch.rand(images, 5, 6, generator=draw) < torch.linspace(0.2, 1.0, images)[:, None, None]
    maps[:, 0] = torch.where(ahead, 4, maps[:, 0])
    return read_scores(maps, BOUNDS, slack=slack)


def by_definition(scores: IntegerScores, classes: Tensor, regions: Regions, left: Callable[..., int]) -> Tensor:
    """`left` of the class's low scores, the rival's high scores and the region, for every rival and region."""
    count, kinds = scores.values.shape[:2]
    far = torch.iinfo(torch.int64).max
    table = torch.full((count, kinds, len(regions)), far)
    for image in range(count):
        for rival in range(kinds):
            for number, region in enumerate(regions.masks()):
                if rival != int(classes[image]):
                    mine, theirs = scores.low[image, classes[image]], scores.high[image, rival]
                    table[image, rival, number] = left(mine.long(), theirs.long(), region)
    return table


def same(found: Tensor, expected: Tensor) -> None:
    away = expected == torch.iinfo(torch.int64).max
    assert torch.equal(found == torch.iinfo(found.dtype).max, away)
    assert torch.equal(found[~away].long(), expected[~away])


@pytest.mark.parametrize("slack", [0, 2])
@pytest.mark.parametrize("rule", [EveryRegion(), LargestRegion(), Monotone(trimmed_sum(1))], ids=lambda rule: rule.name)
def test_leads_of_sums(rule: Rule, slack: int) -> None:
    scores, regions = some_scores(0, slack), regions_of("1x2,2x1")
    classes = torch.tensor([0, 1, 2, 0, 1, 0])

    def left(mine: Tensor, theirs: Tensor, region: Tensor) -> int:
        return int((mine - theirs)[~region].sum()) - 4 * int(region.sum())

    same(rule.leads(scores, classes, regions), by_definition(scores, classes, regions, left))


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("slack", [0, 2])
def test_leads_of_sums_against_several_patches(count: int, slack: int) -> None:
    """Of two patches the worst second one; of more as much again for each as the heaviest region of w = Δ + 4 takes."""
    scores, regions = some_scores(0, slack), regions_of(f"{count}*1x2,2x1")
    classes, masks = torch.tensor([0, 1, 2, 0, 1, 0]), regions.masks()

    def left(mine: Tensor, theirs: Tensor, region: Tensor) -> int:
        if count == 2:
            return min(
                int((mine - theirs)[~(region | other)].sum()) - 4 * int((region | other).sum()) for other in masks
            )
        weights = mine - theirs + 4
        heaviest = max(int(weights[other].clamp(min=0).sum()) for other in masks)
        taken = int(weights[region].clamp(min=0).sum()) + (count - 1) * heaviest
        return int((mine - theirs).sum()) - taken

    for rule in (EveryRegion(), LargestRegion()):
        same(rule.leads(scores, classes, regions), by_definition(scores, classes, regions, left))


def test_several_patches_reach_no_more_than_all_scores() -> None:
    """Three regions of 9 scores each, on a grid of 4 x 5."""
    footprint = Footprint.centered(3, 1, (4, 5), (4, 5))
    scores = torch.zeros(1, 2, 4, 5)
    scores[:, 1] = 1
    found = LargestRegion().certify(read_scores(scores), footprint.regions(parse_threat("3*1x1", (4, 5))))
    assert found.lead is not None and found.lead.tolist() == [20 - 2 * 20]


def test_leads_against_several_patches_need_bounds() -> None:
    scores = read_scores(torch.zeros(1, 3, 5, 6), None)
    with pytest.raises(UsageError, match="Rule 'every-region' needs bounds"):
        EveryRegion().leads(scores, torch.tensor([0]), regions_of("2*1x2"))


@pytest.mark.parametrize("slack", [0, 1])
@pytest.mark.parametrize("threshold", ["0", "1/3"])
def test_leads_of_masked(threshold: str, slack: int) -> None:
    scores, regions, masks = some_scores(1, slack), regions_of("1x1"), regions_of("2x2")
    classes = torch.tensor([0, 2, 2, 0, 1, 0])

    def left(mine: Tensor, theirs: Tensor, region: Tensor) -> int:
        lost = max(int(mine[mask & ~region].sum()) for mask in masks.masks())
        return int(mine[~region].sum()) - lost - int(theirs[~region].sum())

    same(Masked(threshold, masks).leads(scores, classes, regions), by_definition(scores, classes, regions, left))


@pytest.mark.parametrize("slack", [0, 1])
def test_leads_of_two_mask(slack: int) -> None:
    scores, regions, masks = some_scores(2, slack), regions_of("1x1"), regions_of("2x2")
    classes, rival = torch.tensor([0, 2, 1, 0, 1, 0]), torch.tensor([1, 0, 2, 2, 0, 1])

    def left(mine: Tensor, theirs: Tensor, region: Tensor) -> int:
        return min(int((mine - theirs)[~(region | mask)].sum()) for mask in masks.masks())

    expected = by_definition(scores, classes, regions, left)
    same(TwoMask(masks).leads(scores, classes, regions), expected)
    others = torch.ones_like(expected, dtype=torch.bool)
    others[torch.arange(6), rival] = False
    one = TwoMask(masks).leads(scores, classes, regions, rival)
    same(one, expected.masked_fill(others, torch.iinfo(torch.int64).max))


def test_leads_of_views_count_witnesses_first_and_then_the_best_hidden_view() -> None:
    maps = torch.tensor([[[[2, 1, 2]], [[0, 1, 0]]], [[[1, 0, 1]], [[1, 2, 1]]]])
    footprint = Footprint.identity((1, 3))
    regions = footprint.regions(parse_threat("1x1", (1, 3)))  # placement i is seen by view i alone
    leads = Unanimous().leads(read_scores(maps, (0, 2)), torch.tensor([0, 0]), regions)
    far = torch.iinfo(leads.dtype).max
    assert leads.tolist() == [[[far] * 3, [1 * 4 + 2, 2 * 4 + 2, 1 * 4 + 2]], [[far] * 3, [1, 1, 1]]]
    blind = Unanimous().leads(read_scores(maps[:1], (0, 2)), torch.tensor([0]), FULL)
    assert blind[0, 1].tolist() == [-1], "no view hides it"
    rows = Footprint.identity((3, 1)).regions(parse_threat("1x1", (3, 1)))
    turned = Unanimous().leads(read_scores(maps.transpose(2, 3), (0, 2)), torch.tensor([0, 0]), rows)
    assert torch.equal(turned, leads), "views in rows are views as well"
    with pytest.raises(UsageError, match="Rule 'unanimous' needs"):
        Unanimous().leads(read_scores(maps, None), torch.tensor([0, 0]), regions)


FULL = Footprint.identity((1, 3)).regions(parse_threat("1x3", (1, 3)))


@pytest.mark.parametrize("slack", [0, 2])
@pytest.mark.parametrize("name", ["largest-region", "every-region", "masked", "two-mask", "detect:2"])
def test_the_least_lead_is_that_of_the_certificate(name: str, slack: int) -> None:
    scores, regions, rule = some_scores(3, slack), regions_of("1x2"), find_rule(name)
    certificate = rule.certify(scores, regions)
    least = rule.least_leads(scores, certificate.predicted, regions)
    assert certificate.lead is not None and least.shape == scores.values.shape[:2]
    assert torch.equal(least.amin(dim=1).long(), certificate.lead)


def test_the_least_lead_of_the_largest_region_has_no_placement() -> None:
    scores, regions = some_scores(4), regions_of("2x2")
    leads = LargestRegion().least_leads(scores, torch.zeros(6, dtype=torch.int64), regions)
    sums = scores.values.sum(dim=(2, 3)).long()
    assert torch.equal(leads[:, 1:], sums[:, :1] - sums[:, 1:] - 2 * 4 * 16)
    assert bool((leads[:, 0] == torch.iinfo(torch.int64).max).all())


@pytest.mark.parametrize("slack", [0, 1])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "rule",
    [LargestRegion(), EveryRegion(), Monotone(trimmed_sum(1)), Masked(), Masked("1/2"), TwoMask(), Detect()],
    ids=lambda rule: rule.name,
)
def test_the_largest_square_is_the_last_that_is_certified(rule: Rule, seed: int, slack: int) -> None:
    built = rule.built_for(regions_of("3x3"))
    scores = some_scores(seed, slack)
    sides = largest_square(built, scores, squares(built, FOOTPRINT, CPU))
    covered = range(1, 6 if rule.built else 4)  # with masks no further than they reach
    expected = torch.zeros(6, dtype=torch.int64)
    for side in covered:
        expected[built.proven(built.certify(scores, regions_of(f"{side}x{side}")))] = side
    assert torch.equal(sides, expected)
    assert [side for side, _ in squares(built, FOOTPRINT, CPU)] == list(covered)


@pytest.mark.parametrize("known", [None, torch.tensor([1]), torch.tensor([2])], ids=["none", "one", "two"])
def test_all_sides_are_tried_from_those_that_are_known(known: Tensor | None) -> None:
    """Of 30 scores of 4 against nothing, a 3x3 patch may turn 9; of 16 it could turn more than are left."""
    sure = read_scores(torch.tensor([4, 0])[None, :, None, None].expand(1, 2, 5, 6), BOUNDS)
    for rule, most in ((EveryRegion(), 3), (TwoMask(), 3)):
        footprint = Footprint.identity((5, 6))
        built = rule.built_for(footprint.regions(parse_threat("3x3", (5, 6))).maximal())
        assert largest_square(built, sure, squares(built, footprint, CPU), known).tolist() == [most]


def test_known_sides_are_kept_and_a_nested_rule_is_asked_no_more_than_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, asked = some_scores(5), list[int]()
    certify = Rule.certify

    def counting(self: Rule, scores: IntegerScores, regions: Regions, exact: bool = True) -> object:
        assert exact is False, "deciding alone is cheaper"
        asked.append(len(scores.values))
        return certify(self, scores, regions, exact)

    plain = largest_square(EveryRegion(), scores, squares(EveryRegion(), FOOTPRINT, CPU))
    assert 0 in plain.tolist() and int(plain.max()) > 0
    monkeypatch.setattr(Rule, "certify", counting)
    again = largest_square(EveryRegion(), scores, squares(EveryRegion(), FOOTPRINT, CPU), plain)
    assert torch.equal(again, plain) and asked[0] == int((plain < 1).sum())
    kept = largest_square(EveryRegion(), scores, squares(EveryRegion(), FOOTPRINT, CPU), torch.full((6,), 5))
    assert kept.tolist() == [5] * 6
    asked.clear()
    largest_square(EveryRegion(), scores, squares(EveryRegion(), FOOTPRINT, CPU))
    assert asked == [int((plain >= side).sum()) for side in range(int(plain.max()) + 1)]
    asked.clear()
    masked = Masked().built_for(regions_of("3x3"))
    largest_square(masked, scores, squares(masked, FOOTPRINT, CPU))
    assert asked == [6, 6, 6], "its bound may fail at one side and hold at a larger one"


@pytest.mark.parametrize("rule", [Masked(), TwoMask(), Detect()], ids=lambda rule: rule.name)
def test_a_masking_rule_is_built_once_for_one_threat(rule: Rule) -> None:
    small, large = regions_of("1x1"), regions_of("2x2")
    assert not rule.built and rule.masks_for(small) is small and rule.covers(large)
    built = rule.built_for(large)
    assert built.built and built.masks_for(small) is large and built.built_for(small) is built
    assert built.covers(small) and built.covers(large) and not built.covers(regions_of("3x3"))
    built.need_cover(small)
    with pytest.raises(
        UsageError, match="The threat is larger than the rule's masks: one of its regions lies inside no mask"
    ):
        built.need_cover(regions_of("3x3"))
    assert not built.unbuilt().built


def test_every_region_must_be_covered() -> None:
    """Masks that hold most regions are not enough."""
    all_of_them = regions_of("1x1")
    most = MaskRegions(all_of_them.masks()[:-1], all_of_them.placements[:-1])
    assert covered(all_of_them, regions_of("2x2")) and not covered(all_of_them, most) and covered(most, all_of_them)


def test_the_second_mask_is_the_one_that_takes_most() -> None:
    regions, masks = regions_of("1x1"), regions_of("2x2")
    maps = some_scores(7).values[:, 0] - 2
    least, second = second_masks(maps, regions, masks)
    assert least.shape == second.shape == (6, len(regions))
    for image, scores in enumerate(maps):
        for number, region in enumerate(regions.masks()):
            left = [int(scores[~(region | mask)].sum()) for mask in masks.masks()]
            assert int(least[image, number]) == min(left) == left[int(second[image, number])]


def test_other_rules_need_no_masks() -> None:
    rule, regions = EveryRegion(), regions_of("2x2")
    assert rule.built and rule.built_for(regions) is rule.unbuilt() is rule and rule.masks_for(regions) is regions
    assert rule.covers(regions)
    rule.need_cover(regions)


def test_rules_by_name() -> None:
    assert rules_for(views=False) == ["largest-region", "every-region", "masked", "two-mask"]
    assert rules_for(views=True) == ["unanimous"]
    assert {*rules_for(False), *rules_for(True), "detect", "monotone"} == set(RULES)
    with pytest.raises(UsageError, match="Rule 'unanimous' needs a network of views"):
        Unanimous().need_views(promised=False)
    Unanimous().need_views(promised=True)
    EveryRegion().need_views(promised=False)


def test_a_rule_without_leads_says_so() -> None:
    class Silent(Rule):
        name = "silent"
        _predict = _certify = None  # type: ignore[assignment]

    with pytest.raises(UsageError, match=r"'silent' does not say what each placement leaves of its proof\. Define"):
        Silent().leads(some_scores(0), torch.zeros(6, dtype=torch.int64), regions_of("1x1"))
