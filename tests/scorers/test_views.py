"""Rectangles that hide every placement of a patch."""

from typing import Any

import pytest
import torch

from bagcert.errors import UsageError
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.footprint_table import read_footprint
from bagcert.scorers.views import HiddenRectangles, HiddenSets, flags_of, intervals, runs_of
from bagcert.threats import parse_threat


def test_every_run_of_pixels_lies_inside_an_interval() -> None:
    """All small cases; and no more intervals than asked for, all of one length."""
    for size in range(1, 14):
        for patch in range(1, size + 1):
            for most in range(1, size + 2):
                found = intervals(patch, size, most)
                assert len(found) <= most and len(set(found.sum(dim=1).tolist())) == 1
                for start in range(size - patch + 1):
                    run = (torch.arange(size) >= start) & (torch.arange(size) < start + patch)
                    assert bool((run <= found).all(dim=1).any()), (size, patch, most, start)
                for row in found:  # an interval, not a set with gaps
                    places = row.nonzero().flatten()
                    assert int(places[-1] - places[0]) + 1 == len(places)


def test_the_papers_masks() -> None:
    """k = 6: 224 pixels and a patch of 32 give masks of 64 from every 33rd pixel on."""
    found = intervals(32, 224, 6)
    assert found.sum(dim=1).tolist() == [64] * 6
    assert [int(row.nonzero()[0]) for row in found] == [0, 33, 66, 99, 132, 160]
    assert len(intervals(5, 32, 1024)) == 28, "one for each placement"


@pytest.mark.parametrize(("patch", "most"), [((1, 2), 8), ((2, 2), 2), ((3, 4), 2), ((1, 5), 1)])
def test_a_patch_reaches_just_the_views_that_do_not_hide_all_of_it(patch: tuple[int, int], most: int) -> None:
    size = (4, 5)
    hidden = HiddenRectangles.covering(patch, size, most)
    rows, columns = len(hidden.rows), len(hidden.columns)
    masks = hidden.masks(torch.arange(len(hidden))).view(rows, columns, *size)
    assert hidden.footprint.grid == (rows + 1, columns)
    for text in ("1x1", "2x1", f"{patch[0]}x{patch[1]}"):
        regions = hidden.footprint.regions(parse_threat(text, size))
        for index, reached in enumerate(regions.masks()):
            row, column, height, width = regions.placement(index)
            painted = torch.zeros(size, dtype=torch.bool)
            painted[row : row + height, column : column + width] = True
            seen = (painted & ~masks).flatten(2).any(dim=2)
            assert torch.equal(reached[:-1], seen) and bool(reached[-1].all())
            fits = height <= patch[0] and width <= patch[1]
            assert not fits or not bool(reached[:-1].all()), "hidden from some view"


@pytest.mark.parametrize("seed", range(4))
def test_a_patch_reaches_just_the_sets_that_do_not_hold_all_of_it(seed: int) -> None:
    draw, size = torch.Generator().manual_seed(seed), (4, 5)
    sets = torch.rand(6, *size, generator=draw) < 0.7
    sets[:, :, 3] = sets[:, :, 1]  # columns that are treated alike
    hidden = HiddenSets(sets)
    assert hidden.footprint.grid == (7, 1) and hidden.footprint.receptive_field == size
    assert torch.equal(hidden.masks(torch.tensor([4, 0])), sets[[4, 0]])
    for patch in ("1x1", "2x1,1x2", "2x2@lower", torch.rand(9, *size, generator=draw) < 0.1):
        threat = parse_threat(patch, size)
        reached = hidden.footprint.regions(threat).masks()
        for pixels, found in zip(threat.pixels(), reached, strict=True):
            assert found[:-1, 0].tolist() == [bool((pixels & ~each).any()) for each in sets]
            assert bool(found[-1, 0]) == bool(pixels.any())


def test_runs_come_back() -> None:
    for number in range(64):
        seen = torch.tensor([number >> place & 1 for place in range(6)]).bool()
        assert torch.equal(flags_of(runs_of(seen), 6), seen)


def test_a_network_faces_any_threat_with_the_same_weights() -> None:
    """Several shapes, or regions of any form: some view hides all of each placement."""
    network = CleanserConfig(classes=2, channels=1, patch=(1, 1), masks=3, width=1, blocks=(1,))
    scorer = network.build((6, 7), (0.5,), (0.3,))
    hook = torch.zeros(2, 6, 7, dtype=torch.bool)
    hook[0, 1:4, 2] = hook[0, 1, 2:4] = hook[1, 5, 6] = True
    for patch in ("1x3,2x1", "area:6", hook):
        threat = parse_threat(patch, (6, 7))
        faced = scorer.facing(threat)
        assert faced is not scorer and next(faced.parameters()) is next(scorer.parameters())
        reached = faced.footprint.regions(threat).masks()
        assert not bool(reached[:, :-1].flatten(1).all(dim=1).any()) and bool(reached[:, -1].all())
    assert isinstance(scorer.hidden, HiddenRectangles)
    assert len(scorer.hidden.rows) == 3 and int(scorer.hidden.rows[0].sum()) == 2, "itself it stays as it was"


def test_a_patch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match=r"The value of network.patch must fit into 4x5 pixels, but is 5x1\. Choose"):
        HiddenRectangles.covering((5, 1), (4, 5), 3)


LAYER = {"kernel": [1, 1], "stride": [1, 1], "dilation": [1, 1], "padding": [4096, 4096]}


@pytest.mark.parametrize(
    "reach",
    [
        {"image_size": [8, 8], "layers": [LAYER] * 9999},
        {"layers": [{**LAYER, "kernel": [4096, 4096]}]},
        {"pixels": {"rows": [[[0, 1]]] * 10**6, "columns": [[[0, 1]]]}},
        {"hidden": {"sets": [[[0, 1]]] * 99}},
        {"maps": [{"kept": [4096, 4096]}] * 999},
    ],
)
def test_a_footprint_in_rows_that_asks_for_much_is_refused(reach: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"The footprint in the rows (is too large to be drawn|has 999 maps)"):
        read_footprint({"image_size": [4096, 4096], **reach})
