"""What must hold on any score map: the chain, guard bands, ties, maximal footprints, sizes, fail-safe answers."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagcert.certify import certified_size, certify_scores
from bagcert.rules import (
    ABSTAIN,
    Certificate,
    EveryRegion,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    read_scores,
    trimmed_sum,
    weighted_sum,
)
from bagcert.rules import two_mask as two_mask_module
from bagcert.threats import Footprint, Layer, Regions, parse_threat

ALL_RULES: list[Rule] = [
    LargestRegion(),
    EveryRegion(),
    Monotone(trimmed_sum(1)),
    Masked(),
    Masked("2/5"),
    TwoMask(),
]


@st.composite
def networks(draw: st.DrawFn) -> Footprint:
    """Small chains of layers on small, often not square images; now and then with wrap-around or a side branch."""
    size = (draw(st.integers(1, 9)), draw(st.integers(1, 9)))
    if draw(st.booleans()) and min(size) > 1:
        return Footprint.ablation((draw(st.integers(1, size[0])), draw(st.integers(1, size[1]))), size)
    footprint = Footprint.identity(size)
    for _ in range(draw(st.integers(0, 2))):
        kernel = draw(st.sampled_from([1, 3]))
        layer = Layer(kernel, draw(st.integers(1, 2)), draw(st.integers(1, 2)), padding=kernel)
        footprint = footprint.then(layer)
    if draw(st.booleans()):
        wide, tall = Layer((1, 3), padding=(0, 1)), Layer((3, 1), padding=(1, 0))
        footprint = footprint.then(wide).join(footprint.then(tall))
    return footprint


@st.composite
def threats(draw: st.DrawFn, image_size: tuple[int, int]) -> str:
    shapes = [
        (draw(st.integers(1, min(3, image_size[0]))), draw(st.integers(1, min(3, image_size[1]))))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return ",".join(f"{height}x{width}" for height, width in shapes)


@st.composite
def cases(draw: st.DrawFn, low: int = 0, high: int = 1) -> tuple[Tensor, Footprint, str]:
    """Score maps with a favored class; many ties, at times all scores equal."""
    footprint = draw(networks())
    patch = draw(threats(footprint.image_size))
    classes = draw(st.integers(2, 5))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = (6, classes, *footprint.grid)
    scores = torch.randint(low, high + 1, shape, generator=generator)
    scores = torch.where(torch.rand(shape, generator=generator) < draw(st.floats(0, 1)), low, scores)
    favored = torch.rand(6, *footprint.grid, generator=generator) < torch.linspace(0, 1, 6)[:, None, None]
    scores[:, draw(st.integers(0, classes - 1))][favored] = high
    if draw(st.integers(0, 9)) == 0:
        scores[:] = draw(st.sampled_from([low, high]))
    return scores, footprint, patch


def certify(scores: Tensor, footprint: Footprint, patch: str, rule: Rule | str, high: int = 1) -> Certificate:
    return certify_scores(scores, patch, rule=rule, footprint=footprint, bounds=(0, high))


@given(cases())
def test_largest_region_implies_every_region_implies_two_mask(case: tuple[Tensor, Footprint, str]) -> None:
    largest, every, pairs = (certify(*case, rule) for rule in ("largest-region", "every-region", "two-mask"))
    assert bool((largest.certified <= every.certified).all())
    assert bool((every.certified <= pairs.certified).all())
    assert torch.equal(largest.predicted, every.predicted)
    assert torch.equal(every.predicted[every.certified], pairs.predicted[every.certified])


@given(cases(high=3))
def test_masked_implies_two_mask(case: tuple[Tensor, Footprint, str]) -> None:
    masked, pairs = certify(*case, Masked(), high=3), certify(*case, "two-mask", high=3)
    assert bool((masked.certified <= pairs.certified).all())
    assert torch.equal(masked.predicted[masked.certified], pairs.predicted[masked.certified])


@given(cases())
def test_monotone_sum_equals_every_region(case: tuple[Tensor, Footprint, str]) -> None:
    ones = weighted_sum(torch.ones(case[1].grid, dtype=torch.int64))
    monotone, every = certify(*case, Monotone(ones)), certify(*case, "every-region")
    assert monotone.lead is not None and every.lead is not None
    assert torch.equal(monotone.predicted, every.predicted)
    assert torch.equal(monotone.lead, every.lead)


@given(cases(high=2))
def test_a_tie_is_never_certified_and_the_lowest_class_is_predicted(case: tuple[Tensor, Footprint, str]) -> None:
    scores, footprint, patch = case
    tied = scores[:, :1].expand(-1, scores.shape[1], -1, -1)
    for rule in ALL_RULES:
        certificate = certify(tied, footprint, patch, rule, high=2)
        assert not certificate.certified.any(), rule
        assert certificate.predicted.tolist() == [0] * len(tied), rule


@given(cases())
def test_dropping_smaller_footprints_changes_nothing_for_sum_rules(case: tuple[Tensor, Footprint, str]) -> None:
    scores, footprint, patch = case
    every_placement = footprint.regions(parse_threat(patch, footprint.image_size))
    checked = read_scores(scores)
    for rule in (LargestRegion(), EveryRegion(), Monotone(trimmed_sum(1))):
        small, large = (rule.certify(checked, regions) for regions in (every_placement.maximal(), every_placement))
        assert small.lead is not None and large.lead is not None
        assert torch.equal(small.predicted, large.predicted)
        assert torch.equal(small.certified, large.certified)
        assert torch.equal(small.lead, large.lead)


@given(cases(high=2), st.booleans())
def test_deciding_early_agrees_with_the_exact_search(case: tuple[Tensor, Footprint, str], own_masks: bool) -> None:
    scores, footprint, patch = case
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    pixel = footprint.regions(parse_threat("1x1", footprint.image_size)).maximal()
    rule, threat = (TwoMask(), regions) if own_masks else (TwoMask(regions), pixel)
    checked = read_scores(scores, bounds=None)
    exact, decided = rule.certify(checked, threat), rule.certify(checked, threat, exact=False)
    assert exact.lead is not None
    assert torch.equal(exact.certified, decided.certified)
    assert torch.equal(exact.lead > 0, decided.certified)
    assert torch.equal(exact.predicted, rule.predict(checked, threat))
    assert decided.lead is None


@given(cases(high=2), st.data())
def test_the_weakest_pair_and_class_have_the_lead(case: tuple[Tensor, Footprint, str], data: st.DataObject) -> None:
    """The reported places are not decoration: masking them leaves just that lead over just that rival."""
    scores, footprint, patch = case
    certificate = certify(scores, footprint, patch, "two-mask", high=2)
    assert certificate.lead is not None and certificate.weakest_class is not None
    assert certificate.weakest_region is not None and certificate.second_region is not None
    number = data.draw(st.integers(0, len(scores) - 1))
    taken = torch.zeros(footprint.grid, dtype=torch.bool)
    for region in (certificate.weakest_region[number], certificate.second_region[number]):
        pixels = torch.zeros(1, *footprint.image_size, dtype=torch.bool)
        row, column, height, width = region.tolist()
        pixels[0, row : row + height, column : column + width] = True
        taken |= footprint.regions(parse_threat(pixels, footprint.image_size)).masks()[0]
    own, rival = int(certificate.predicted[number]), int(certificate.weakest_class[number])
    assert own != rival
    left = (scores[number, own] - scores[number, rival])[~taken].sum()
    assert int(left) == int(certificate.lead[number])


@pytest.mark.slow
@given(cases(), st.integers(0, 2**31))
def test_a_guard_band_survives_any_change_inside_it(case: tuple[Tensor, Footprint, str], seed: int) -> None:
    scores, footprint, patch = case
    generator = torch.Generator().manual_seed(seed)
    doubt = torch.rand(scores.shape, generator=generator) < 0.1
    changed = torch.where(doubt, torch.randint(0, 2, scores.shape, generator=generator), scores)
    for rule in ALL_RULES:
        guarded = certify_scores(scores, patch, rule=rule, footprint=footprint, uncertain=doubt)
        plain = certify_scores(changed, patch, rule=rule, footprint=footprint)
        assert bool((guarded.certified <= certify(scores, footprint, patch, rule).certified).all())
        if rule.name != "masked" or rule == ALL_RULES[3]:  # with T > 0 the guarded bound is another one: see below
            assert bool((guarded.certified <= plain.certified).all()), rule
        assert torch.equal(plain.predicted[guarded.certified], guarded.predicted[guarded.certified]), rule


@pytest.mark.slow
@given(cases(high=40), st.integers(0, 2**31), st.integers(1, 3))
def test_slack_survives_every_score_off_by_that_much(
    case: tuple[Tensor, Footprint, str], seed: int, slack: int
) -> None:
    scores, footprint, patch = case
    shift = torch.randint(-slack, slack + 1, scores.shape, generator=torch.Generator().manual_seed(seed))
    changed = (scores + shift).clamp(0, 40)
    for rule in ALL_RULES:
        guarded = certify_scores(scores, patch, rule=rule, footprint=footprint, bounds=(0, 40), slack=slack)
        plain = certify_scores(changed, patch, rule=rule, footprint=footprint, bounds=(0, 40))
        assert torch.equal(plain.predicted[guarded.certified], guarded.predicted[guarded.certified]), rule


@given(cases())
def test_slack_costs_two_units_for_each_cell_that_counts(case: tuple[Tensor, Footprint, str]) -> None:
    scores, footprint, patch = case
    plain = certify_scores(10 * scores, patch, rule="largest-region", footprint=footprint, bounds=(0, 10))
    guarded = certify_scores(10 * scores, patch, rule="largest-region", footprint=footprint, bounds=(0, 10), slack=3)
    assert plain.lead is not None and guarded.lead is not None
    assert torch.equal(
        plain.lead - guarded.lead, torch.full_like(plain.lead, 6 * footprint.grid[0] * footprint.grid[1])
    )


@given(cases(high=2))
def test_sizes_are_the_largest_certified_squares(case: tuple[Tensor, Footprint, str]) -> None:
    scores, footprint, _ = case
    largest = min(footprint.image_size)
    sizes = certified_size(scores, rule="every-region", footprint=footprint, bounds=(0, 2))
    for side in range(1, largest + 1):
        certified = certify(scores, footprint, f"{side}x{side}", "every-region", high=2).certified
        assert torch.equal(sizes >= side, certified)


@pytest.mark.slow
@given(cases(high=2), st.integers(1, 3))
def test_sizes_under_one_mask_set(case: tuple[Tensor, Footprint, str], side: int) -> None:
    scores, footprint, _ = case
    side = min(side, *footprint.image_size)
    patch = f"{side}x{side}"
    masks = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    for rule in (TwoMask(), Masked("1/4")):
        sizes = certified_size(scores, rule=rule, patch=patch, footprint=footprint, bounds=(0, 2))
        fixed = replace(rule, masks=masks)
        whole = certify(scores, footprint, patch, rule, high=2)
        proven = torch.zeros(len(scores), dtype=torch.bool)
        for smaller in range(side, 0, -1):
            certificate = certify(scores, footprint, f"{smaller}x{smaller}", fixed, high=2)
            assert torch.equal(
                certificate.predicted, whole.predicted
            )  # the masks are the inference, whatever the threat
            proven |= certificate.certified
            assert torch.equal(sizes >= smaller, proven)
            if smaller == side:
                assert torch.equal(certificate.certified, whole.certified)


@pytest.mark.slow
@given(cases(), st.integers(0, 2**31))
def test_an_answer_on_an_attacked_map_is_the_clean_prediction(case: tuple[Tensor, Footprint, str], seed: int) -> None:
    """Abstain unless certified: what is answered under attack is what the clean image would have been given."""
    scores, footprint, patch = case
    generator = torch.Generator().manual_seed(seed)
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    chosen = regions.masks()[torch.randint(len(regions), (1,), generator=generator)]
    noise = torch.randint(0, 2, scores.shape, generator=generator)
    attacked = torch.where(chosen[:, None], noise, scores)
    for rule in ALL_RULES:
        clean, answers = certify(scores, footprint, patch, rule), certify(attacked, footprint, patch, rule).answers()
        given_ = answers != ABSTAIN
        assert torch.equal(answers[given_], clean.predicted[given_]), rule


@pytest.mark.slow
@given(cases())
def test_pieces_do_not_change_answers(case: tuple[Tensor, Footprint, str]) -> None:
    """A batch of many equals batches of one, lead and places included."""
    for rule in ALL_RULES:
        whole = certify(*case, rule)
        for number in range(len(case[0])):
            single = certify(case[0][number : number + 1], case[1], case[2], rule)
            for name in ("predicted", "certified", "lead", "weakest_region", "weakest_class"):
                assert torch.equal(getattr(whole, name)[number : number + 1], getattr(single, name)), (rule, name)


def test_an_answer_is_a_class_or_minus_one() -> None:
    certificate = Certificate(torch.tensor([0, 2, 1]), torch.tensor([True, False, True]))
    assert certificate.answers().tolist() == [0, -1, 1]


def test_adding_smaller_masks_is_another_rule() -> None:
    """Under 1x2 masks the first map below is certified; with the 1x1 masks added, it is not even predicted alike."""
    footprint = Footprint.identity((1, 4))
    pairs, pixels = (footprint.regions(parse_threat(patch, (1, 4))) for patch in ("1x2", "1x1"))
    both = footprint.regions(parse_threat("1x2,1x1", (1, 4)))
    assert isinstance(both, Regions) and len(both) == len(pairs) + len(pixels)
    maps = torch.stack([torch.tensor(bits) for bits in torch.cartesian_prod(*[torch.arange(2)] * 8).tolist()])
    scores = read_scores(maps.view(-1, 2, 1, 4))
    alone, mixed = TwoMask(pairs).predict(scores, pairs), TwoMask(both).predict(scores, pairs)
    assert bool((alone != mixed).any())
    heavy, light = Masked(0, pairs).predict(scores, pairs), Masked(0, pixels).predict(scores, pixels)
    assert bool((heavy != light).any())


def test_only_disagreeing_masks_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image whose every one-mask winner is the plain argmax needs no pair to be predicted."""
    scores = torch.zeros(1, 3, 8, 8, dtype=torch.int64)
    scores[:, 1] = 1

    def refuse(*_: object) -> Tensor:
        raise AssertionError("searched")

    monkeypatch.setattr(two_mask_module, "outside_pairs", refuse)
    regions = Footprint.identity((8, 8)).regions(parse_threat("2x2", (8, 8))).maximal()
    assert TwoMask().predict(read_scores(scores), regions).tolist() == [1]
