"""Given the same scores, the graph's integers are the rule's: class, certificate, lead, weakest place."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.onnx.export import ScoreKind, certificate_model
from bagcert.onnx.rule_graphs import GRAPHS, SEVERAL
from bagcert.rules import Certificate, TwoMask, find_rule, read_scores
from bagcert.threats import Footprint, Layer, Regions, parse_threat
from tests.onnx.running import outputs_of
from tests.rules.test_oracle import random_maps

CROSSES = torch.zeros(4, 8, 8, dtype=torch.bool)
for shift in range(4):
    CROSSES[shift, 2 + shift] = CROSSES[shift, :, 2 + shift] = True


def regions_of(footprint: Footprint, patch: str | Tensor) -> Regions:
    return footprint.regions(parse_threat(patch, footprint.image_size)).maximal()


DILATED = Footprint.of_layers([Layer(3, dilation=2, padding=2)], (8, 8))
REGIONS = {
    "shipped models": regions_of(Footprint.centered(7, 1, (32, 32), (32, 32)), "5x5"),
    "stride": regions_of(Footprint.centered(5, 2, (16, 16), (8, 8)), "4x4"),
    "several shapes": regions_of(Footprint.centered(3, 1, (8, 8), (8, 8)), "area:6"),
    "gaps": regions_of(DILATED, "1x1"),
    "wrapped": regions_of(Footprint.ablation((3, 3), (8, 8)), "2x2"),
    "free form": regions_of(Footprint.centered(3, 1, (8, 8), (8, 8)), CROSSES),
    "all there is": regions_of(Footprint.identity((2, 2)), "2x2"),
}
TOGETHER = {  # several patches at once
    "shipped models": regions_of(Footprint.centered(7, 1, (32, 32), (32, 32)), "2*2x2"),
    "two": regions_of(Footprint.centered(3, 1, (8, 8), (8, 8)), "2*2x1"),
    "two of several shapes": regions_of(Footprint.centered(3, 1, (8, 8), (8, 8)), "2*1x3,2x1"),
    "two disks": regions_of(Footprint.identity((6, 6)), "2*disk:3"),
    "four": regions_of(Footprint.centered(3, 1, (8, 8), (8, 8)), "4*1x1"),
}
# The full grid takes seconds for each case.
SHIPPED = pytest.param("shipped models", marks=pytest.mark.slow)
CASES = [SHIPPED, *(name for name in REGIONS if name != "shipped models")]
WRITTEN = [*GRAPHS, "detect:3", "two-mask:2"]
VALUES = {"votes": (0, 1), "ties": (0, 1, 2), "fixed point": (-(2**20), -300, 5, 2**20)}


def assert_same(found: dict[str, Any], certificate: Certificate) -> None:
    assert certificate.lead is not None and certificate.weakest_region is not None
    for name, expected in {
        "class": certificate.predicted,
        "certified": certificate.certified,
        "answer": certificate.answers(),
        "lead": certificate.lead,
        "weakest": certificate.weakest_region,
    }.items():
        np.testing.assert_array_equal(found[name], expected.numpy(), err_msg=name)
    assert ("alert" in found) == ("detectable" in found) == (certificate.alert is not None)
    if certificate.alert is not None and certificate.detectable is not None:
        np.testing.assert_array_equal(found["alert"], certificate.alert.numpy())
        np.testing.assert_array_equal(found["detectable"], certificate.detectable.numpy())


def judged(model: onnx.ModelProto, problems: Tensor | None = None, **maps: Tensor) -> dict[str, Any]:
    """What the model says of score maps; without `problems`, of images that have none."""
    fine = torch.zeros(len(maps["values"]), dtype=torch.int64)
    given = {f"rule__{name}": each for name, each in maps.items()}
    return outputs_of(model, rule__problem=fine if problems is None else problems, **given)


@pytest.mark.parametrize("rule", WRITTEN)
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("place", CASES)
def test_integers_are_equal(place: str, values: str, rule: str) -> None:
    regions, levels = REGIONS[place], VALUES[values]
    classes = 10 if place == "shipped models" else 3
    maps = random_maps(7, 40, classes, regions.grid, levels).to(torch.int32)
    bounds = (min(levels), max(levels))
    found = judged(certificate_model(find_rule(rule), regions, ScoreKind(classes, bounds)), values=maps)
    assert_same(found, find_rule(rule).certify(read_scores(maps, bounds), regions))
    np.testing.assert_array_equal(found["scores"], maps.numpy())


@pytest.mark.parametrize("rule", WRITTEN)
@pytest.mark.parametrize("place", [SHIPPED, "several shapes", "free form"])
def test_guard_bands_are_equal(place: str, rule: str) -> None:
    regions = REGIONS[place]
    votes = random_maps(8, 40, 4, regions.grid, (0, 1)).to(torch.int32)
    unsure = torch.rand(votes.shape, generator=torch.Generator().manual_seed(0)) < 0.03
    model = certificate_model(find_rule(rule), regions, ScoreKind(4, (0, 1), guarded=True))
    low, high = votes.masked_fill(unsure, 0), votes.masked_fill(unsure, 1)
    found = judged(model, values=votes, low=low, high=high)
    assert_same(found, find_rule(rule).certify(read_scores(votes, (0, 1), uncertain=unsure), regions))

    scores = random_maps(9, 40, 4, regions.grid, (-50, 0, 60)).to(torch.int32)
    model = certificate_model(find_rule(rule), regions, ScoreKind(4, (-50, 60), slack=3, guarded=True))
    found = judged(model, values=scores, low=scores - 3, high=scores + 3)
    assert_same(found, find_rule(rule).certify(read_scores(scores, (-50, 60), slack=3), regions))


@pytest.mark.parametrize("rule", [*SEVERAL, "detect:3"])
@pytest.mark.parametrize("place", [SHIPPED, *(name for name in TOGETHER if name != "shipped models")])
def test_several_patches_at_once_are_equal(place: str, rule: str) -> None:
    regions = TOGETHER[place]
    if regions.count > 2 and "detect" in rule:
        return  # refused
    for values, levels in VALUES.items():
        bounds = (min(levels), max(levels))
        maps = random_maps(11, 12, 3, regions.grid, levels).to(torch.int32)
        maps[:3], maps[:3, 1] = levels[0], levels[-1]  # proven
        found = judged(certificate_model(find_rule(rule), regions, ScoreKind(3, bounds)), values=maps)
        expected = find_rule(rule).certify(read_scores(maps, bounds), regions)
        assert_same(found, expected)
        assert place in ("two disks", "four") or bool(find_rule(rule).proven(expected)[:3].all()), values
    scores = random_maps(12, 12, 3, regions.grid, (-50, 0, 60)).to(torch.int32)
    scores[:6, 1] = 60
    model = certificate_model(find_rule(rule), regions, ScoreKind(3, (-50, 60), slack=3, guarded=True))
    found = judged(model, values=scores, low=scores - 3, high=scores + 3)
    assert_same(found, find_rule(rule).certify(read_scores(scores, (-50, 60), slack=3), regions))


@pytest.mark.parametrize("rule", GRAPHS)
@pytest.mark.parametrize("guarded", [False, True])
def test_images_with_a_problem_are_not_certified(rule: str, guarded: bool) -> None:
    """Every map by itself is one for class 0 all over, which each rule certifies."""
    regions = REGIONS["shipped models"]
    votes = torch.zeros(4, 3, *regions.grid, dtype=torch.int32)
    votes[:, 0] = 1
    maps = {"values": votes, **({"low": votes, "high": votes} if guarded else {})}
    model = certificate_model(find_rule(rule), regions, ScoreKind(3, (0, 1), guarded=guarded))
    before, after = judged(model, **maps), judged(model, torch.tensor([0, 1, 0, 2]), **maps)
    proven = "detectable" if find_rule(rule).detects else "certified"
    assert before[proven].all() and after["problem"].tolist() == [0, 1, 0, 2]
    assert not after[proven][1::2].any()
    assert_refused({name: value[1::2] for name, value in after.items()})
    for name in before:
        np.testing.assert_array_equal(before[name][::2], after[name][::2], err_msg=name)


def assert_refused(found: dict[str, Any]) -> None:
    """No class, no certificate, a lead below every other, an empty placement and no evidence."""
    assert found["problem"].all() and not found["certified"].any()
    assert (found["class"] == -1).all() and (found["answer"] == -1).all()
    assert (found["lead"] == np.iinfo(np.int64).min).all()
    assert not found["weakest"].any() and not found["scores"].any()


def test_another_class_than_the_argmax_may_be_consistent() -> None:
    """Scores piled up in one place win the plain sum; under the mask of that place the even class wins every pair."""
    regions = REGIONS["several shapes"]
    piled, even = torch.zeros(8, 8), torch.ones(8, 8)
    piled[3:5, 3:5] = 40
    maps = torch.stack([piled, even])[None].to(torch.int32)
    found = judged(certificate_model(TwoMask(), regions, ScoreKind(2, (0, 40))), values=maps)
    assert maps.sum(dim=(2, 3)).argmax(dim=1).tolist() == [0] and found["class"].tolist() == [1]
    assert_same(found, TwoMask().certify(read_scores(maps, (0, 40)), regions))


def test_sums_that_int32_does_not_hold_are_added_in_int64() -> None:
    assert ScoreKind(10, (0, 1)).integer(1024) == np.int32
    assert ScoreKind(10, (-(2**20), 2**20)).integer(1024) == np.int64
    assert ScoreKind(10, (0, 2**18 - 1)).integer(1024) == np.int32
    assert ScoreKind(10, (0, 2**18 - 1), slack=1).integer(1024) == np.int64


@pytest.mark.parametrize("rule", ["two-mask", "detect", "detect:9"])
def test_the_least_of_numbers_beyond_32_bits(rule: str) -> None:
    """Outside one mask 5 is left, outside the others 2**30 and more: onnxruntime 1.31 takes 2**31 for less than 5."""
    regions = regions_of(Footprint.identity((4, 8)), "1x2")
    maps = torch.zeros(1, 2, 4, 8, dtype=torch.int32)
    maps[0, 0, 2, 3:5], maps[0, 0, 0, 0] = 2**30, 5
    found = judged(certificate_model(find_rule(rule), regions, ScoreKind(2, (0, 2**30))), values=maps)
    assert_same(found, find_rule(rule).certify(read_scores(maps, (0, 2**30)), regions))
    assert found["lead"].tolist() == [{"two-mask": 0, "detect": 5, "detect:9": -4}[rule]]


def test_what_has_no_graph_is_refused() -> None:
    regions = REGIONS["stride"]
    with pytest.raises(
        UsageError,
        match=r"Rule 'masked' cannot be exported\. Choose one of largest-region, every-region, two-mask, detect\.",
    ):
        certificate_model(find_rule("masked"), regions, ScoreKind(3, (0, 1)))
    with pytest.raises(UsageError, match=r"The rule's masks are not built for the threat itself\. Use defense\.again"):
        certificate_model(TwoMask(masks=REGIONS["gaps"]), regions, ScoreKind(3, (0, 1)))
    pairs = Footprint.identity((4, 4)).regions(parse_threat("2*1x1", (4, 4))).maximal()
    for rule in ("two-mask", "two-mask:3"):
        with pytest.raises(
            UsageError,
            match=r"The graph of 'two-mask' knows one patch, but the threat has 2 at once\. Export it for one "
            r"patch, or with one of the rules largest-region, every-region, detect\.",
        ):
            certificate_model(find_rule(rule), pairs, ScoreKind(3, (0, 1)))
    with pytest.raises(UsageError, match="Rule 'detect' proves nothing about 4 patches at once"):
        certificate_model(find_rule("detect"), TOGETHER["four"], ScoreKind(3, (0, 1)))
