"""Several patches at once: every pair of placements and every content on small worlds, and the definitions."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from bagcert.certify import certify_scores
from bagcert.errors import UsageError
from bagcert.rules import (
    Detect,
    EveryRegion,
    LargestRegion,
    Masked,
    Monotone,
    Rule,
    TwoMask,
    Unanimous,
    masking_rule,
    read_scores,
    trimmed_sum,
)
from bagcert.threats import Footprint, Regions, RegionThreat, parse_threat
from bagcert.threats.threat import SeveralThreat
from tests.rules import slow
from tests.rules.test_oracle import random_maps

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """A grid whose scores are the pixels' own or see their neighbors; what clean and what attacked scores may be."""

    grid: tuple[int, int]
    patch: str
    field: int
    classes: int
    clean: tuple[int, ...]
    attacked: tuple[int, ...]

    @property
    def bounds(self) -> tuple[int, int]:
        return min(self.attacked), max(self.attacked)

    def regions(self, count: int = 2) -> Regions:
        threat = parse_threat(f"{count}*{self.patch}", self.grid)
        return Footprint.centered(self.field, 1, self.grid, self.grid).regions(threat).maximal()

    def maps(self, count: int) -> Tensor:
        return random_maps(len(self.clean), count, self.classes, self.grid, self.clean)


WORLDS = [
    World((1, 7), "1x1", 1, 2, (0, 1), (0, 1)),
    World((1, 7), "1x1", 1, 2, (0, 1), (0, 1, 9)),
    World((1, 6), "1x1", 1, 3, (0, 1), (0, 9)),
    World((2, 4), "1x1", 1, 2, (-1, 0, 4), (-1, 5)),
    World((2, 8), "2x1", 1, 2, (0, 1), (0, 9)),
    World((1, 10), "1x1", 3, 2, (0, 2), (0, 3)),
]


def oracle(maps: Integers, regions: NDArray[np.bool_]) -> Integers:
    """The inference against two patches, from its definition, for maps [b k cells] and regions [n cells]."""
    count, classes, _ = maps.shape
    unions = np.array([one | two for one, two in itertools.combinations_with_replacement(regions, 2)])
    consistent = np.zeros((count, classes), dtype=bool)
    for mine in range(classes):
        good = np.ones((count, len(unions)), dtype=bool)
        for rival in set(range(classes)) - {mine}:
            delta = maps[:, mine] - maps[:, rival]
            left = delta @ (~unions).T.astype(np.int64)
            rest = (regions[None] & ~unions[:, None]).astype(np.int64)  # u n cells
            heaviest = np.einsum("bc,unc->bun", delta.clip(min=0), rest).max(axis=2)
            good &= left > 2 * heaviest
        consistent[:, mine] = good.any(axis=1)
    assert (consistent.sum(axis=1) <= 1).all(), "two consistent classes"
    plain: Integers = maps.sum(axis=2).argmax(axis=1)
    return np.where(consistent.any(axis=1), consistent.argmax(axis=1), plain)


def attacked(scores: Tensor, region: Tensor, values: tuple[int, ...]) -> Integers:
    """Every map [.. k cells] that differs from this one inside the region only, with scores from `values`."""
    cells = region.flatten().nonzero().flatten().numpy()
    choices = np.array(list(itertools.product(values, repeat=len(cells) * len(scores))))
    maps = np.repeat(scores.flatten(1).numpy()[None], len(choices), axis=0)
    maps[:, :, cells] = choices.reshape(len(choices), len(scores), len(cells))
    return maps


def flips(world: World, scores: Tensor, predicted: int, infer: "object") -> int:
    """How many attacked maps of all pairs of placements get another class than the predicted one."""
    masks = world.regions().masks()
    assert callable(infer)
    return sum(
        int((infer(attacked(scores, one | two, world.attacked)) != predicted).sum())
        for one, two in itertools.combinations_with_replacement(masks, 2)
    )


def fast(world: World, maps: Tensor) -> Tensor:
    return TwoMask().predict(read_scores(maps, world.bounds), world.regions())


@pytest.mark.parametrize("world", WORLDS)
def test_the_inference_is_that_of_the_definition(world: World) -> None:
    regions = world.regions().masks().flatten(1).numpy()
    maps = world.maps(300)
    draw = torch.Generator().manual_seed(1)
    levels = torch.tensor(world.attacked)[torch.randint(len(world.attacked), maps.shape, generator=draw)]
    both = torch.cat([maps, torch.where(torch.rand(maps.shape, generator=draw) < 0.3, levels, maps)])
    expected = oracle(both.flatten(2).numpy(), regions)
    assert fast(world, both).tolist() == expected.tolist()
    plain = both.sum(dim=(2, 3)).argmax(dim=1).numpy()
    if world.bounds[1] > max(world.clean):
        assert (expected != plain).any(), "or the test would not see the search"


@pytest.mark.parametrize("world", [world for world in WORLDS if world.field == 1])
def test_no_two_patches_change_a_certified_class(world: World) -> None:
    """All pairs of placements, overlapping and coinciding ones too, with all contents."""
    regions, maps = world.regions(), world.maps(300)
    flat = regions.masks().flatten(1).numpy()
    for rule in (EveryRegion(), LargestRegion(), TwoMask()):
        found = rule.certify(read_scores(maps, world.bounds), regions)
        infer = (lambda x: oracle(x, flat)) if isinstance(rule, TwoMask) else (lambda x: x.sum(axis=2).argmax(axis=1))
        certified = found.certified.nonzero().flatten()[:4].tolist()
        assert certified or not isinstance(rule, TwoMask), "or the test would be empty"
        for image in certified:
            assert flips(world, maps[image], int(found.predicted[image]), infer) == 0


def test_the_inference_for_one_patch_would_be_unsound() -> None:
    """Σ Δ > 4 max Σ Δ⁺ certifies the inference of two_patches, but not that of one patch."""
    world = WORLDS[1]
    maps, one = world.maps(300), world.regions(count=1)
    found = TwoMask().certify(read_scores(maps, world.bounds), world.regions())
    delta = maps[torch.arange(300), found.predicted][:, None] - maps
    bound = 4 * one.sums(delta.clamp(min=0)).amax(dim=2)
    enough = ((delta.sum(dim=(2, 3)) > bound) | (torch.arange(2) == found.predicted[:, None])).all(dim=1)
    assert bool(enough.any()) and bool(found.certified[enough].all())
    flat, old, new = one.masks().flatten(1).numpy(), 0, 0

    def for_one(attacked_maps: Integers) -> Integers:
        scores = torch.from_numpy(attacked_maps).view(-1, world.classes, *world.grid)
        return TwoMask().predict(read_scores(scores, world.bounds), one).numpy()

    for image in enough.nonzero().flatten()[:3].tolist():
        assert int(for_one(maps[image].flatten(1).numpy()[None])[0]) == int(found.predicted[image])
        old += flips(world, maps[image], int(found.predicted[image]), for_one)
        new += flips(world, maps[image], int(found.predicted[image]), lambda x: oracle(x, flat))
    assert old > 0 and new == 0


def least(world: World, scores: Tensor, predicted: int, kind: str, count: int = 2) -> int:
    """The lead by its definition: over all rivals and all unions of `count` regions."""
    regions = slow.dilated_regions(world.grid, tuple(map(int, world.patch.split("x"))), world.field)  # type: ignore[arg-type]
    regions = slow.maximal(regions) if kind == "two-mask" else regions  # its masks
    width, maps = world.bounds[1] - world.bounds[0], scores.tolist()
    unions = [frozenset[slow.Cell]().union(*some) for some in itertools.combinations_with_replacement(regions, count)]
    found: list[int] = []
    for rival in set(range(len(maps))) - {predicted}:
        for union in unions:
            ahead = slow.total(maps, predicted, union) - slow.total(maps, rival, union)
            if kind == "two-mask":
                gains = [
                    sum(max(maps[predicted][i][j] - maps[rival][i][j], 0) for i, j in region - union)
                    for region in regions
                ]
                found.append(ahead - 2 * max(gains))
            elif kind == "every-region":
                found.append(ahead - width * len(union))
            else:
                found.append(slow.total(maps, predicted) - slow.total(maps, rival) - 2 * width * len(union))
    return min(found)


UNEVEN = World((1, 6), "1x3", 1, 2, (0, 1), (0, 1))  # the patches in the middle are in no largest pair


@pytest.mark.parametrize("world", [*WORLDS, UNEVEN])
@pytest.mark.parametrize("rule", [EveryRegion(), LargestRegion(), TwoMask()])
def test_leads_of_two_patches_equal_the_definitions(rule: Rule, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    maps, regions = world.maps(20), world.regions()
    scores = read_scores(maps, world.bounds)
    found = rule.certify(scores, regions)
    assert found.lead is not None
    expected = [least(world, scores, int(own), rule.name) for scores, own in zip(maps, found.predicted, strict=True)]
    assert found.lead.tolist() == expected
    assert found.certified.tolist() == [lead > 0 for lead in expected]
    assert torch.equal(rule.certify(scores, regions, exact=False).certified, found.certified)
    monkeypatch.setitem(masking_rule.ROW_CELLS, "cpu", 1)
    again = rule.certify(scores, regions)
    assert again.lead is not None and torch.equal(again.lead, found.lead), "in small pieces"


@pytest.mark.parametrize("rule", [EveryRegion(), LargestRegion(), TwoMask()])
def test_the_weakest_pair_has_the_least_lead(rule: Rule) -> None:
    world = World((3, 5), "1x2", 1, 3, (0, 1, 3), (0, 3))
    maps, regions = world.maps(20), world.regions()
    found = rule.certify(read_scores(maps, world.bounds), regions)
    assert found.lead is not None and found.weakest_region is not None and found.second_region is not None
    assert found.weakest_class is not None
    places = regions.placements.tolist()
    for image in range(20):
        one, two = (places.index(each[image].tolist()) for each in (found.weakest_region, found.second_region))
        union = (regions.masks()[one] | regions.masks()[two]).numpy()
        mine, rival = (maps[image, int(each[image])].numpy() for each in (found.predicted, found.weakest_class))
        delta, width = mine - rival, world.bounds[1] - world.bounds[0]
        heaviest = max((delta.clip(min=0) * ~union)[region].sum() for region in regions.masks().numpy())
        lead = {
            "every-region": delta[~union].sum() - width * union.sum(),
            "largest-region": delta.sum() - 2 * width * union.sum(),
            "two-mask": delta[~union].sum() - 2 * heaviest,
        }[rule.name]
        assert int(found.lead[image]) == int(lead)


@pytest.mark.parametrize("rule", [EveryRegion(), LargestRegion()])
def test_more_patches_have_a_sound_bound(rule: Rule) -> None:
    world = World((1, 9), "1x1", 1, 2, (0, 1), (0, 1))
    maps = world.maps(60)
    found = rule.certify(read_scores(maps, world.bounds), world.regions(3))
    assert found.lead is not None and 0 < int(found.certified.sum()) < 60
    for image in range(60):
        exact = least(world, maps[image], int(found.predicted[image]), rule.name, 3)
        assert int(found.lead[image]) <= exact
    everything = certify_scores(maps, "9*1x1", 1, rule=rule)
    assert not bool(everything.certified.any()), "nine patches paint all nine pixels"


@given(data=st.data(), rule=st.sampled_from([EveryRegion(), LargestRegion()]), count=st.integers(1, 4))
def test_one_more_patch_never_helps(data: st.DataObject, rule: Rule, count: int) -> None:
    seed = data.draw(st.integers(0, 2**16))
    maps = (torch.rand(4, 3, 4, 5, generator=torch.Generator().manual_seed(seed)) < 0.5).int()
    maps[:, 0] |= (torch.rand(4, 4, 5, generator=torch.Generator().manual_seed(seed + 1)) < 0.8).int()
    fewer, more = (certify_scores(maps, f"{number}*1x2", 3, rule=rule).lead for number in (count, count + 1))
    assert fewer is not None and more is not None and bool((more <= fewer).all())


@given(seed=st.integers(0, 2**16), slack=st.integers(1, 2))
def test_a_guard_band_holds_for_all_scores_inside_it(seed: int, slack: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    maps = torch.randint(0, 6, (6, 2, 3, 6), generator=draw)
    maps[:, 1] += torch.randint(0, 20, (6, 1, 1), generator=draw)
    regions = Footprint.identity((3, 6)).regions(parse_threat("2*1x1", (3, 6))).maximal()
    for rule in (TwoMask(), EveryRegion()):
        found = rule.certify(read_scores(maps, (-9, 30), slack=slack), regions)
        moved = maps + torch.randint(-slack, slack + 1, maps.shape, generator=draw)
        other = rule.certify(read_scores(moved, (-9, 30)), regions)
        assert bool(other.certified[found.certified].all())
        assert torch.equal(other.predicted[found.certified], found.predicted[found.certified])


def test_rectangles_and_masks_give_the_same() -> None:
    threat = parse_threat("2*2x1", (4, 5))
    by_masks = SeveralThreat(RegionThreat(threat.pixels()), 2)
    maps = random_maps(0, 12, 3, (4, 5), (0, 1))
    for rule in ("every-region", "largest-region", "two-mask"):
        one, two = (certify_scores(maps, each, 3, rule=rule) for each in (threat, by_masks))
        assert one.lead is not None and two.lead is not None and torch.equal(one.lead, two.lead)
        assert torch.equal(one.predicted, two.predicted)


def test_masks_for_two_patches_certify_smaller_threats_and_those_for_one_refuse_two() -> None:
    maps = random_maps(0, 40, 2, (1, 12), (0, 1))
    scores, footprint = read_scores(maps), Footprint.identity((1, 12))
    two, one, small = (footprint.regions(parse_threat(text, (1, 12))).maximal() for text in ("2*1x2", "1x2", "2*1x1"))
    built = TwoMask().built_for(two)
    whole = built.certify(scores, two)
    assert 0 < int(whole.certified.sum()) < 40
    for smaller in (one, small):
        found = built.certify(scores, smaller)
        assert torch.equal(found.predicted, whole.predicted), "the masks are part of the inference"
        assert torch.equal(found.certified, whole.certified)
    with pytest.raises(UsageError, match="The threat is larger than the rule's masks"):
        TwoMask().built_for(one).certify(scores, two)
    assert not TwoMask().built_for(one).covers(small) and built.covers(one)


@pytest.mark.parametrize(
    ("rule", "patch", "count"),
    [
        (Masked(), "2*1x1", 2),
        (Detect(), "3*1x1", 3),
        (Monotone(trimmed_sum(1)), "2*1x1", 2),
        (Unanimous(), "2*1x1", 2),
        (TwoMask(), "3*1x1", 3),
    ],
)
def test_other_rules_refuse_in_one_line(rule: Rule, patch: str, count: int) -> None:
    scores = read_scores(torch.zeros(1, 2, 3, 3, dtype=torch.int32))
    regions = Footprint.identity((3, 3)).regions(parse_threat(patch, (3, 3))).maximal()
    for ask in (rule.predict, rule.certify):
        with pytest.raises(UsageError) as error:
            ask(scores, regions)
        assert str(error.value) == (
            f"Rule '{rule.name}' proves nothing about {count} patches at once. "
            "Use 'every-region', or a threat of fewer patches."
        )
