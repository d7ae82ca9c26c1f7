"""The answer or an alert: every patch of small worlds, the definitions, and what must hold on any score map."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagcert.certify import certified_size, certify_scores
from bagcert.errors import UsageError
from bagcert.rules import Certificate, Detect, Rule, TwoMask, find_rule, read_scores, rule
from bagcert.rules.largest_square import largest_square, squares
from bagcert.threats import Footprint, Regions, parse_threat
from bagcert.threats.regions import MaskRegions
from tests.rules import slow
from tests.rules.test_narrowing import SINGLES, bands, maps, regions, rows
from tests.rules.test_oracle import SETTINGS, random_maps
from tests.rules.test_properties import cases

ABOVE = (0, 1, 3)


def rules(above: int) -> list[Rule]:
    return [Detect(above), TwoMask(alert_above=above)]


def flags(certificate: Certificate) -> tuple[Tensor, Tensor]:
    assert certificate.alert is not None and certificate.detectable is not None
    return certificate.alert, certificate.detectable


def centered(setting: int, patch: tuple[int, int] | None = None) -> Regions:
    grid, own, field, _, _ = SETTINGS[setting]
    height, width = patch or own
    return Footprint.centered(field, 1, grid, grid).regions(parse_threat(f"{height}x{width}", grid)).maximal()


def every_attack(scores: Tensor, region: Tensor, values: tuple[int, ...]) -> Tensor:
    """Every map that differs from scores [k i j] inside the region only, with scores from `values`: [n k i j]."""
    contents = torch.tensor(list(product(values, repeat=len(scores) * int(region.sum()))))
    attacked = scores.expand(len(contents), *scores.shape).clone()
    attacked.flatten(1)[:, region.expand_as(scores).flatten()] = contents
    return attacked


def fooled(which: Rule, masks: Regions, threat: Regions, scores: Tensor, values: tuple[int, ...]) -> bool:
    """Does any patch of the threat change the class of a map without an alert?"""
    built = replace(which, masks=masks)  # type: ignore[type-var]
    clean = built.predict(read_scores(scores[None], None), masks)
    for region in threat.masks():
        found = built.certify(read_scores(every_attack(scores, region, values), None), masks, exact=False)
        if bool(((found.predicted != clean) & ~flags(found)[0]).any()):
            return True
    return False


@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_definitions(setting: int) -> None:
    grid, patch, field, classes, values = SETTINGS[setting]
    masks = slow.maximal(slow.dilated_regions(grid, patch, field))
    maps = random_maps(500 + setting, 30, classes, grid, values)
    for above in ABOVE:
        for which in rules(above):
            found = which.certify(read_scores(maps, None), centered(setting))
            alert, detectable = flags(found)
            for number, scores in enumerate(maps.tolist()):
                own = slow.plain(scores) if which.detects else slow.two_mask(scores, masks)
                least = min(slow.single_lead(scores, own, mask) for mask in masks)
                assert int(found.predicted[number]) == own
                assert bool(alert[number]) == slow.alerted(scores, own, masks, above) == (least < -above)
                assert bool(detectable[number]) == (least > above)
                if which.detects:
                    assert found.lead is not None and int(found.lead[number]) == least - above


@pytest.mark.slow
@pytest.mark.parametrize("setting", range(len(SETTINGS)))
def test_whatever_the_patch_the_answer_given_here_or_an_alert(setting: int) -> None:
    """Every placement and every content over the alphabet."""
    grid, patch, _, classes, values = SETTINGS[setting]
    maps, masks = random_maps(600 + setting, 12, classes, grid, values), centered(setting)
    outcomes = set()
    for above in (0, 1):
        for which in rules(above):
            _, detectable = flags(which.certify(read_scores(maps, None), masks))
            for scores, safe in zip(maps, detectable.tolist(), strict=True):
                broken = fooled(which, masks, masks, scores, values)
                assert not (safe and broken), (which, scores)
                outcomes.add((safe, broken))
    if patch != grid:
        assert (True, False) in outcomes and (False, True) in outcomes


@pytest.mark.slow
@pytest.mark.parametrize("setting", [1, 2, 3])
def test_masks_of_a_larger_threat_prove_a_smaller_one(setting: int) -> None:
    """Detectable for single pixels under the masks of the setting's own patch; more than for that patch."""
    grid, patch, _, classes, values = SETTINGS[setting]
    patch = (1, 2) if patch == (1, 1) else patch
    masks, pixels = centered(setting, patch), centered(setting, (1, 1))
    maps = random_maps(700 + setting, 25, classes, grid, values)
    for which in rules(0):
        built = replace(which, masks=masks)  # type: ignore[type-var]
        small, large = (built.certify(read_scores(maps, None), over) for over in (pixels, masks))
        assert torch.equal(flags(small)[0], flags(large)[0]), "an alert is part of the inference"
        assert not (flags(small)[0] & flags(small)[1]).any()
        assert bool((flags(large)[1] <= flags(small)[1]).all())
        if which.detects:
            assert small.lead is not None and torch.equal(small.lead > 0, flags(small)[1])
        for scores, safe in zip(maps, flags(small)[1].tolist(), strict=True):
            assert not (safe and fooled(which, masks, pixels, scores, values)), (which, scores)


def test_a_smaller_threat_may_be_proven_where_some_mask_is_not() -> None:
    """Four cells under masks of two: each pixel lies in an outer mask, where class 0 wins; the middle one may alert."""
    first, second = [[[0, 2, 2, 1]], [[1, 0, 0, 0]]], [[[0, 4, 4, 1]], [[3, 0, 0, 0]]]
    scores, footprint = read_scores(torch.tensor([first, second]), None), Footprint.identity((1, 4))
    pairs, pixels = (footprint.regions(parse_threat(patch, (1, 4))) for patch in ("1x2", "1x1"))
    leads = Detect().leads(scores, torch.tensor([0, 0]), pairs)[:, 1]
    assert leads.tolist() == [[3, 0, 1], [5, -2, 1]]  # outside cells 01, 12 and 23
    small, large = (Detect(masks=pairs).certify(scores, over) for over in (pixels, pairs))
    assert small.predicted.tolist() == [0, 0]
    assert small.lead is not None and large.lead is not None
    assert (small.lead.tolist(), large.lead.tolist()) == ([1, -2], [0, -2])
    assert [each.tolist() for each in flags(small)] == [[False, True], [True, False]]
    assert [each.tolist() for each in flags(large)] == [[False, True], [False, False]]
    proven = TwoMask(pairs, alert_above=0).certify(scores, pixels)
    assert flags(proven)[0].tolist() == [False, True]
    assert proven.predicted.tolist() == [0, 0] and flags(proven)[1].tolist() == [True, False]


@given(cases(high=2), st.sampled_from(ABOVE))
def test_neither_what_is_detectable_nor_what_is_certified_raises_an_alert(
    case: tuple[Tensor, Footprint, str], above: int
) -> None:
    scores, footprint, patch = case
    detect, pairs = (
        certify_scores(scores, patch, rule=each, footprint=footprint, bounds=None) for each in rules(above)
    )
    for found in (detect, pairs):
        alert, detectable = flags(found)
        assert not (alert & detectable).any() and not (alert & found.certified).any()
    assert not detect.certified.any(), "the class may change"
    if above == 0:
        assert bool((pairs.certified <= flags(pairs)[1]).all())


def test_what_two_mask_certifies_is_detectable_or_alerted() -> None:
    """Both masks hide the cell that decides the plain sums, so that the two rules answer with different classes."""
    masks = MaskRegions(
        torch.tensor([[[1, 1, 0, 0]], [[0, 1, 1, 0]]]).bool(), torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]])
    )
    scores = read_scores(torch.tensor([[[[0, 5, 0, 0]], [[1, 0, 1, 1]]], [[[0, 0, 0, 0]], [[1, 0, 1, 1]]]]), None)
    pairs, detect = TwoMask().certify(scores, masks), Detect().certify(scores, masks)
    assert pairs.predicted.tolist() == [1, 1] and bool(pairs.certified.all())
    assert detect.predicted.tolist() == [0, 1]
    assert [each.tolist() for each in flags(detect)] == [[True, False], [False, True]]


@given(cases(high=2), st.sampled_from(ABOVE), st.sampled_from([0, 1]))
def test_alerts_leave_class_and_certificate_of_two_mask_alone(
    case: tuple[Tensor, Footprint, str], above: int, slack: int
) -> None:
    scores, footprint, patch = case
    for exact in (True, False):
        plain, alerting = (
            certify_scores(scores, patch, rule=each, footprint=footprint, bounds=None, slack=slack, exact=exact)
            for each in ("two-mask", f"two-mask:{above}")
        )
        assert plain.alert is None and plain.detectable is None
        assert bounds_of(plain) == bounds_of(replace(alerting, alert=None, detectable=None))


def bounds_of(certificate: Certificate) -> dict[str, list[object]]:
    return {name: value.tolist() for name, value in vars(certificate).items() if isinstance(value, Tensor)}


@given(cases(high=2), st.sampled_from(ABOVE))
def test_deciding_agrees_with_the_exact_lead(case: tuple[Tensor, Footprint, str], above: int) -> None:
    scores, footprint, patch = case
    for which in rules(above):
        exact, decided = (
            certify_scores(scores, patch, rule=which, footprint=footprint, bounds=None, exact=each)
            for each in (True, False)
        )
        for one, two in zip((exact.predicted, *flags(exact)), (decided.predicted, *flags(decided)), strict=True):
            assert torch.equal(one, two)
        if which.detects:
            assert exact.lead is not None and torch.equal(exact.lead > 0, flags(exact)[1]) and decided.lead is None


@given(cases(high=2), st.data())
def test_the_weakest_place_and_class_have_the_lead(case: tuple[Tensor, Footprint, str], data: st.DataObject) -> None:
    scores, footprint, patch = case
    found = certify_scores(scores, patch, rule="detect:1", footprint=footprint, bounds=None)
    assert found.lead is not None and found.weakest_region is not None and found.weakest_class is not None
    number = data.draw(st.integers(0, len(scores) - 1))
    row, column, height, width = found.weakest_region[number].tolist()
    pixels = torch.zeros(1, *footprint.image_size, dtype=torch.bool)
    pixels[0, row : row + height, column : column + width] = True
    taken = footprint.regions(parse_threat(pixels, footprint.image_size)).masks()[0]
    own, rival = int(found.predicted[number]), int(found.weakest_class[number])
    assert own != rival
    assert int((scores[number, own] - scores[number, rival])[~taken].sum()) - 1 == int(found.lead[number])


@given(cases(high=2))
def test_a_higher_threshold_means_fewer_alerts_and_fewer_proofs(case: tuple[Tensor, Footprint, str]) -> None:
    scores, footprint, patch = case
    for make in (Detect, lambda above: TwoMask(alert_above=above)):
        found = [flags(certify_scores(scores, patch, rule=make(t), footprint=footprint, bounds=None)) for t in range(6)]
        for (alert, detectable), (fewer_alerts, fewer_proofs) in pairwise(found):
            assert bool((fewer_alerts <= alert).all()) and bool((fewer_proofs <= detectable).all())


@given(cases(high=40), st.integers(0, 2**31), st.integers(1, 3), st.sampled_from(ABOVE))
def test_a_guard_band_survives_any_change_inside_it(
    case: tuple[Tensor, Footprint, str], seed: int, slack: int, above: int
) -> None:
    scores, footprint, patch = case
    shift = torch.randint(-slack, slack + 1, scores.shape, generator=torch.Generator().manual_seed(seed))
    for which in rules(above):
        plain, guarded, changed = (
            certify_scores(maps, patch, rule=which, footprint=footprint, bounds=None, slack=band)
            for maps, band in ((scores, 0), (scores, slack), (scores + shift, 0))
        )
        assert torch.equal(flags(guarded)[0], flags(plain)[0]), "an alert is raised by the scores as they are"
        assert bool((flags(guarded)[1] <= flags(plain)[1]).all())
        kept = (changed.predicted == guarded.predicted) | flags(changed)[0]
        assert bool((flags(guarded)[1] <= kept).all())


@given(cases(), st.integers(0, 2**31))
def test_uncertain_votes_count_for_the_attacker(case: tuple[Tensor, Footprint, str], seed: int) -> None:
    scores, footprint, patch = case
    doubt = torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed)) < 0.1
    regions = footprint.regions(parse_threat(patch, footprint.image_size)).maximal()
    checked = read_scores(scores, uncertain=doubt)
    for which in rules(0):
        found = which.certify(checked, regions)
        for number in range(len(scores)):
            own = int(found.predicted[number])
            worst = slow.guarded(checked.low[number].tolist(), checked.high[number].tolist(), own)
            masks = [frozenset(map(tuple, mask.nonzero().tolist())) for mask in regions.masks()]
            least = min(slow.single_lead(worst, own, mask) for mask in masks)
            assert bool(flags(found)[1][number]) == (least > 0)


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 4, 2**40]), st.sampled_from(["plain", "slack"]), st.booleans())
def test_no_class_that_matters_is_left_out(seed: int, above: int, kind: str, own_masks: bool) -> None:
    scores, masks = bands(maps(seed, 12, (-1, 0, 3)), seed, kind), regions("2x2")
    over = masks if own_masks else regions("1x1")
    for which in rules(above):
        built = replace(which, masks=masks)  # type: ignore[type-var]
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(rule, "FEW", 1)
            found = built.certify(scores, over, exact=False)
        dense = built._certify(scores, over, False)
        for one, two in zip(
            (found.predicted, found.certified, *flags(found)),
            (dense.predicted, dense.certified, *flags(dense)),
            strict=True,
        ):
            assert torch.equal(one, two)


def test_just_those_that_come_within_the_threshold_are_needed() -> None:
    images = torch.stack([rows("1111111", "1111100", "1111000", "1110000")])  # 7, less 1 for a mask
    scores = read_scores(images)
    for which, kept in ((Detect(0), 1), (Detect(1), 2), (Detect(2), 3), (TwoMask(), 2), (TwoMask(alert_above=3), 4)):
        needed = which._needed(scores, SINGLES, exact=False)
        assert needed is not None and needed[0].nonzero().flatten().tolist() == list(range(kept))
        assert which._needed(scores, SINGLES, exact=True) is None


def test_an_attacker_can_always_provoke_an_alert() -> None:
    """On a map that is detectable by far, some patch raises an alert, and the answer stays."""
    scores = torch.tensor([[[1, 1, 1, 1, 1, 1, 1]], [[0, 0, 0, 0, 0, 0, 0]]])
    regions = Footprint.identity((1, 7)).regions(parse_threat("1x1", (1, 7)))
    assert flags(Detect().certify(read_scores(scores[None], None), regions))[1].tolist() == [True]
    scores[1, 0, 3] = 100
    assert flags(Detect().certify(read_scores(scores[None], None), regions))[0].tolist() == [True]


def test_thresholds_as_they_are_written() -> None:
    assert [find_rule(text).written for text in ("detect", "detect:0", "detect:40", "two-mask", "two-mask:0")] == [
        "detect",
        "detect",
        "detect:40",
        "two-mask",
        "two-mask:0",
    ]
    assert find_rule("two-mask:7").alert_above == 7 and find_rule("two-mask").alert_above is None
    assert find_rule("every-region").written == "every-region"
    for text, words in (
        ("every-region:3", "Rule 'every-region' raises no alerts. Use detect or two-mask."),
        ("detect:x", "Cannot read the threshold of 'detect:x'. Write whole score units, as in detect:40."),
        ("detect:", "Cannot read the threshold"),
        ("detect:-1", "Cannot read the threshold"),
        (f"detect:{'0' * 17}", "Cannot read the threshold"),
        (f"detect:{'9' * 5000}", "Cannot read the threshold"),
        ("detekt:1", "Did you mean 'detect'"),
        ("monotone:1", "Rule 'monotone' needs"),
        (f"detect:{2**53 + 1}", "whole number of score units >= 0"),
    ):
        with pytest.raises(UsageError, match=words):
            find_rule(text)
    for wrong in (-1, 1.5, True):
        with pytest.raises(UsageError, match="The threshold of an alert must be a whole number of score units >= 0"):
            Detect(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("above", [2**31 - 1, 2**31, 2**53])
def test_a_threshold_beyond_every_sum_raises_no_alert_and_proves_nothing(above: int) -> None:
    maps = random_maps(0, 10, 3, (5, 5), (0, 1))
    for which in rules(above):
        found = certify_scores(maps, "1x1", 3, rule=which)
        assert not flags(found)[0].any() and not flags(found)[1].any()
        if which.detects:
            assert found.lead is not None and int(found.lead.max()) < -above + 100


def test_the_largest_square_of_detect_is_what_is_detectable() -> None:
    footprint = Footprint.identity((6, 6))
    maps = torch.randint(0, 6, (300, 2, 6, 6), generator=torch.Generator().manual_seed(0))
    sides = certified_size(maps, rule="detect:9", patch="3x3", footprint=footprint, bounds=None)
    masks = footprint.regions(parse_threat("3x3", (6, 6))).maximal()
    built, scores = Detect(9, masks), read_scores(maps, None)
    assert torch.equal(sides, largest_square(built, scores, squares(built, footprint, torch.device("cpu"))))
    for side in (1, 2, 3):
        over = footprint.regions(parse_threat(f"{side}x{side}", (6, 6))).maximal()
        assert torch.equal(sides >= side, flags(built.certify(scores, over))[1])
    assert len(set(sides.tolist())) > 2
