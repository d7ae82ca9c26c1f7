"""Masks of any form, from the definitions: overlapping, empty, with cells that none reaches; scores of any sign."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from bagcert.rules import Detect, IntegerScores, TwoMask, masking_rule, read_scores, top_classes
from bagcert.rules.alerts import least_lead
from bagcert.rules.labels import certify_maps
from bagcert.threats.regions import MaskRegions
from tests.rules.test_alerts import flags
from tests.rules.test_oracle import random_maps
from tests.rules.test_two_patches import oracle

GRIDS = [(1, 6), (3, 2), (2, 4), (5, 1)]
VALUES = [(-1, 0, 1), (-3, 0, 1), (0, 1, 2), (-5, -2, 4)]


@dataclass(frozen=True)
class World:
    """Score maps with a guard band, masks, and regions that each lie inside a mask."""

    scores: IntegerScores
    table: Tensor  # bool [n i j]
    inside: Tensor  # bool [m i j]

    @staticmethod
    def drawn(seed: int, images: int = 60) -> "World":
        draw = torch.Generator().manual_seed(seed)
        grid, values, count = GRIDS[seed % 4], VALUES[seed // 2 % 4], 3 + seed % 3
        table = torch.rand(count, *grid, generator=draw) < 0.6 * torch.rand(count, 1, 1, generator=draw)
        chosen = table[torch.randint(count, (2 * count,), generator=draw)]
        inside = chosen & (torch.rand(chosen.shape, generator=draw) < 0.6)
        maps = random_maps(seed, images, 2 + seed // 3 % 4, grid, values)
        scale, slack = (1, 0) if seed % 2 else (4, seed // 2 % 3)
        return World(read_scores(scale * maps, None, slack=slack), table, inside)

    def masks(self, count: int = 1) -> MaskRegions:
        return regions(self.table, count)

    @property
    def unions(self) -> Tensor:
        return self.table[:, None] | self.table

    @property
    def covers(self) -> Tensor:
        """Bool [m n]: does the mask hold the region?"""
        return ~(self.inside[:, None] & ~self.table).flatten(2).any(dim=2)


def regions(table: Tensor, count: int = 1) -> MaskRegions:
    """Each with its number in the place of its row."""
    places = torch.ones(len(table), 4, dtype=torch.int64)
    places[:, 0] = torch.arange(len(table))
    return MaskRegions(table, places, count)


def left(maps: Tensor, sets: Tensor) -> Tensor:
    """Sums of maps [b ... i j] outside sets [... i j]."""
    flat = (~sets).flatten(-2).long().flatten(0, -2)
    return (maps.long().flatten(-2) @ flat.T).view(*maps.shape[:-2], *sets.shape[:-2])


def rivals(delta: Tensor, classes: Tensor) -> Tensor:
    """Of [b k ...] all classes but each image's own, [b k-1 ...]."""
    kept = torch.arange(delta.shape[1]) != classes[:, None]
    return delta[kept].view(len(delta), -1, *delta.shape[2:])


def ahead(mine: Tensor, theirs: Tensor, classes: Tensor) -> Tensor:
    """The lead of each image's class over every rival, at each position: [b k-1 i j]."""
    return rivals(mine[torch.arange(len(mine)), classes][:, None] - theirs, classes)


@pytest.fixture(params=["whole", "in pieces, without probes"])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As much as possible at once, or one row at a time, with nothing ruled out early by a heavy mask."""
    if request.param != "whole":
        monkeypatch.setitem(masking_rule.ROW_CELLS, "cpu", 1)
        monkeypatch.setattr(top_classes, "PROBES", 0)
        monkeypatch.setattr(top_classes, "FEW", 1)
    yield


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("seed", range(16))
def test_sets_of_classes(seed: int) -> None:
    world = World.drawn(seed)
    values, low, high = (
        left(each, world.unions) for each in (world.scores.values, world.scores.low, world.scores.high)
    )
    classes = torch.arange(values.shape[1])
    equal_counts = (classes < classes[:, None])[:, :, None, None]  # of equal sums the lower index comes first
    before = (values[:, None] > values[:, :, None]) | ((values[:, None] == values[:, :, None]) & equal_counts)
    reaches = (high[:, None] >= low[:, :, None]) & (classes != classes[:, None])[:, :, None, None]
    totals = world.scores.values.sum(dim=(2, 3))
    for best in range(1, len(classes)):
        members = (before.sum(dim=2) < best).all(dim=3).any(dim=2)
        for row, total in zip(members, totals.tolist(), strict=True):
            for label in sorted(classes.tolist(), key=lambda each, total=total: (-total[each], each)):  # type: ignore[misc]
                row[label] |= int(row.sum()) < best
        held = (reaches.sum(dim=2) < best).all(dim=3)  # b k n
        proven = (held[:, :, None] & world.covers).any(dim=3).all(dim=2)
        for found, expected in (
            (TwoMask().certify_top(world.scores, best, world.masks()), held.all(dim=2)),
            (TwoMask(world.masks()).certify_top(world.scores, best, regions(world.inside)), proven),
        ):
            assert torch.equal(found.members, members)
            assert torch.equal(found.proven, expected)


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("seed", range(8))
def test_labels(seed: int) -> None:
    world = World.drawn(seed)
    thresholds = torch.randint(-2, 3, world.scores.values.shape[1:2], generator=torch.Generator().manual_seed(seed))
    shift = thresholds[:, None, None]
    values, low, high = (
        left(each - shift, world.unions) for each in (world.scores.values, world.scores.low, world.scores.high)
    )
    always, never = ((values > 0).all(dim=3).any(dim=2), (values <= 0).all(dim=3).any(dim=2))
    assert not (always & never).any()
    plain = (world.scores.values - shift).sum(dim=(2, 3)) > 0
    found = certify_maps(world.scores, thresholds, world.masks())
    assert torch.equal(found.present, always | (plain & ~never))
    assert torch.equal(found.kept_present, (low > 0).all(dim=3))
    assert torch.equal(found.kept_absent, (high < 0).all(dim=3))


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("seed", range(8))
def test_two_masks_and_alerts(seed: int) -> None:
    world = World.drawn(seed)
    own, smaller = TwoMask(world.masks(), alert_above=1), regions(world.inside)
    for threat, covers in ((own.masks, torch.eye(len(world.table), dtype=torch.bool)), (smaller, world.covers)):
        found = own.certify(world.scores, threat)  # type: ignore[arg-type]
        decided = own.certify(world.scores, threat, exact=False)  # type: ignore[arg-type]
        delta = ahead(world.scores.low, world.scores.high, found.predicted)
        under = left(delta, world.unions).amin(dim=(1, 3))  # b n
        least = torch.where(covers, under[:, None], -(2**40)).amax(dim=2).amin(dim=1)
        assert found.lead is not None and torch.equal(found.lead, least)
        alone = left(delta, world.table).amin(dim=1)
        sure = torch.where(covers, alone[:, None], -(2**40)).amax(dim=2).amin(dim=1) > 1
        seen = left(ahead(world.scores.values, world.scores.values, found.predicted), world.table).amin(dim=(1, 2))
        assert torch.equal(least_lead(world.scores.values, found.predicted, world.masks()).long(), seen)
        for each in (found, decided):
            assert torch.equal(each.certified, least > 0)
            assert torch.equal(flags(each)[0], seen < -1)
            assert torch.equal(flags(each)[1], sure & (seen >= -1))


@pytest.mark.usefixtures("ways")
@pytest.mark.parametrize("seed", range(16))
def test_two_patches(seed: int) -> None:
    world = World.drawn(seed)
    masks, scores = world.masks(count=2), world.scores
    found, decided = (TwoMask().certify(scores, masks, exact) for exact in (True, False))
    assert found.predicted.tolist() == oracle(scores.values.flatten(2).numpy(), world.table.flatten(1).numpy()).tolist()
    unions = world.unions.flatten(0, 1)
    delta = ahead(scores.low, scores.high, found.predicted)
    gain = ahead(scores.high, scores.low, found.predicted).clamp(min=0)
    rest = [left(gain.masked_fill(union, 0), ~world.table).amax(dim=2) for union in unions]  # b k-1, heaviest of each
    margins = left(delta, unions) - 2 * torch.stack(rest, dim=2)
    assert found.lead is not None and torch.equal(found.lead, margins.amin(dim=(1, 2)))
    for each in (found, decided):
        assert torch.equal(each.predicted, found.predicted)
        assert torch.equal(each.certified, found.lead > 0)
    assert_named(found.weakest_class, found.weakest_region, found.second_region, found.predicted, margins, found.lead)
    detect = Detect().certify(scores, masks)
    seen = left(ahead(scores.values, scores.values, detect.predicted), unions).amin(dim=(1, 2))
    assert torch.equal(least_lead(scores.values, detect.predicted, masks).long(), seen)


def assert_named(
    rival: Tensor | None, first: Tensor | None, second: Tensor | None, own: Tensor, margins: Tensor, lead: Tensor
) -> None:
    """The class and the two masks that are named have the lead."""
    assert rival is not None and first is not None and second is not None
    count = int(margins.shape[2] ** 0.5)
    number = rival - (rival > own).long()  # among the rivals
    pair = first[:, 0] * count + second[:, 0]
    assert not (rival == own).any()
    assert torch.equal(margins[torch.arange(len(own)), number, pair], lead)


@pytest.mark.parametrize("seed", range(8))
def test_no_image_is_no_answer(seed: int) -> None:
    world = World.drawn(seed, images=0)
    for count in (1, 2):
        for exact in (True, False):
            assert len(TwoMask().certify(world.scores, world.masks(count), exact)) == 0


@pytest.mark.usefixtures("ways")
def test_a_lead_of_one_that_a_bound_does_not_show() -> None:
    """The second class leaves 1, with bounds far below; the third leaves more, or is a copy of the first."""
    table = torch.zeros(3, 1, 5, dtype=torch.bool)  # the last one is empty
    table[0, 0, 2:4] = table[1, 0, [0, 2]] = True
    first, second = torch.tensor([[2, 1, 2, 2, 2]]), torch.zeros(1, 5, dtype=torch.int64)
    scores = read_scores(torch.stack([torch.stack([first, second, third]) for third in (second - 9, first)]), None)
    found, decided = (TwoMask().certify(scores, regions(table, 2), exact) for exact in (True, False))
    assert found.lead is not None and found.lead.tolist() == [1, 0]
    for each in (found, decided):
        assert each.predicted.tolist() == [0, 0] and each.certified.tolist() == [True, False]


def test_one_mask_twice_may_be_the_only_pair_for_a_class() -> None:
    """Outside the first cell the second class leads by 3, and any two masks take 2; each mask more takes another 1."""
    table = torch.eye(4, dtype=torch.bool)[:, None]
    scores = read_scores(torch.tensor([[[[9, 0, 0, 0]], [[0, 1, 1, 1]]]]), None)
    assert TwoMask().predict(scores, regions(table, 2)).tolist() == [1]
