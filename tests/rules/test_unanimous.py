"""The rule of views that hide the patch, on maps made by hand."""

from itertools import product

import pytest
import torch
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.rules import Unanimous, read_scores
from bagcert.threats.regions import MaskRegions

# Three views in a row, and one below them that hides nothing; the second placement is hidden from two views.
REACHED = torch.tensor([[[0, 1, 1], [1, 1, 1]], [[1, 0, 0], [1, 1, 1]]], dtype=torch.bool)
REGIONS = MaskRegions(REACHED, torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]))


def counts(of_first: list[int], of_second: list[int], whole: tuple[int, int]) -> Tensor:
    """Of two classes, what three views and the one that hides nothing count, up to 5."""
    return torch.tensor([[[of_first, [whole[0]] * 3], [of_second, [whole[1]] * 3]]])


@pytest.mark.parametrize(
    ("scores", "predicted", "lead"),
    [
        (counts([5, 5, 5], [0, 0, 0], (5, 0)), 0, 1),
        (counts([0, 0, 0], [5, 5, 4], (0, 5)), 1, 1),
        (counts([0, 0, 0], [5, 5, 5], (3, 2)), 1, 1),  # unanimous views outweigh the whole image
        (counts([0, 0, 1], [5, 4, 4], (0, 5)), 1, 0),  # no view hides the second placement and is unanimous
        (counts([1, 0, 0], [4, 5, 5], (0, 5)), 1, 0),
        (counts([2, 2, 3], [3, 3, 2], (2, 3)), 1, 0),  # nobody is: the whole image decides
        (counts([2, 2, 3], [3, 3, 2], (3, 3)), 0, 0),  # the lowest class on ties
        (counts([1, 1, 1], [4, 4, 4], (0, 5)), 1, 0),  # only the view that sees the patch is
    ],
)
def test_unanimous_views_decide_and_those_that_hide_the_patch_prove(scores: Tensor, predicted: int, lead: int) -> None:
    read = read_scores(scores, (0, 5))
    certificate = Unanimous().certify(read, REGIONS)
    assert certificate.predicted.tolist() == Unanimous().predict(read, REGIONS).tolist() == [predicted]
    assert certificate.lead is not None and certificate.lead.tolist() == [lead]
    assert certificate.certified.tolist() == [lead > 0]
    assert certificate.weakest_class is not None and certificate.weakest_class.tolist() == [1 - predicted]


def test_the_lead_counts_the_views_at_the_weakest_placement() -> None:
    one_more = MaskRegions(
        ~torch.tensor([[[1, 1, 1], [0, 0, 0]], [[0, 1, 1], [0, 0, 0]]], dtype=torch.bool), REGIONS.placements
    )
    certificate = Unanimous().certify(read_scores(counts([5, 5, 5], [0, 0, 0], (5, 0)), (0, 5)), one_more)
    assert certificate.lead is not None and certificate.lead.tolist() == [2]
    assert certificate.weakest_region is not None and certificate.weakest_region.tolist() == [[0, 1, 1, 1]]


def test_images_of_a_batch_are_answered_each_by_itself() -> None:
    """By its views, by the whole image, and the same again for the other class; the views of the third prove it."""
    maps = [
        counts([0, 0, 1], [5, 4, 4], (4, 0)),
        counts([2, 2, 3], [3, 3, 2], (2, 3)),
        counts([5, 5, 5], [0, 0, 0], (2, 3)),
        counts([2, 2, 3], [3, 3, 2], (3, 2)),
    ]
    certificate = Unanimous().certify(read_scores(torch.cat(maps), (0, 5)), REGIONS)
    assert certificate.predicted.tolist() == [1, 1, 0, 0]
    assert certificate.certified.tolist() == [False, False, True, False]
    assert certificate.weakest_class is not None and certificate.weakest_class.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(("classes", "most"), [(2, 2), (3, 1)])
@pytest.mark.parametrize("regions", [REGIONS, MaskRegions(REACHED[:1], REGIONS.placements[:1])], ids=["two", "one"])
def test_every_world_of_four_views_that_keeps_the_promise(classes: int, most: int, regions: MaskRegions) -> None:
    """Certified exactly if no attacked map of this world has another class: all maps, all placements, all contents.

    A patch changes what the views that see it count, in any way that keeps the promise; the fourth sees every patch.
    """
    views = [view for view in product(range(most + 1), repeat=classes) if view.count(most) <= 1]
    worlds = [world for world in product(views, repeat=4) if len({about(view, most) for view in world} - {None}) <= 1]
    maps = torch.tensor(worlds)[:, [[0, 1, 2], [3, 3, 3]]].permute(0, 3, 1, 2)  # of the fourth, three times the same
    certificate = Unanimous().certify(read_scores(maps, (0, most)), regions)
    for world, answer in zip(worlds, certificate.predicted.tolist(), strict=True):
        agreed = {about(view, most) for view in world} - {None}
        assert answer == (agreed.pop() if agreed else world[3].index(max(world[3])))
    safe = [True] * len(worlds)
    for reached in regions.table[:, 0].tolist():
        answers: dict[
            tuple[tuple[int, ...], ...], set[int]
        ] = {}  # by what the views count that the patch is hidden from
        hidden = [tuple(view for view, seen in zip(world, reached, strict=False) if not seen) for world in worlds]
        for key, answer in zip(hidden, certificate.predicted.tolist(), strict=True):
            answers.setdefault(key, set()).add(answer)
        safe = [held and len(answers[key]) == 1 for held, key in zip(safe, hidden, strict=True)]
    assert certificate.certified.tolist() == safe
    assert 0 < sum(safe) < len(safe)


def about(view: tuple[int, ...], most: int) -> int | None:
    """The class that a view is unanimous about."""
    return view.index(most) if most in view else None


def test_the_very_last_view_decides_where_no_view_is_unanimous() -> None:
    scores = torch.zeros(1, 2, 3, 3, dtype=torch.int64)
    scores[:, 0], scores[:, 1, -1, -1] = 1, 2
    regions = MaskRegions(torch.ones(1, 3, 3, dtype=torch.bool), torch.tensor([[0, 0, 1, 1]]))
    assert Unanimous().predict(read_scores(scores, (0, 5)), regions).tolist() == [1]


def test_scores_without_the_promise_are_refused() -> None:
    with pytest.raises(UsageError, match="Rule 'unanimous' needs a network of views, but these scores promise"):
        bagcert.certify_scores(torch.ones(1, 2, 8, 8), "1x1", rule="unanimous")
    with pytest.raises(UsageError, match="Rule 'unanimous' needs a network of views, but these scores promise"):
        bagcert.certified_size(torch.ones(1, 2, 8, 8), rule="unanimous")
    words = (
        r"^Two unanimous views decide for different classes, so the scores break their promise\. Use another rule\.$"
    )
    with pytest.raises(UsageError, match=words):
        Unanimous().predict(read_scores(counts([5, 0, 0], [0, 5, 0], (0, 0)), (0, 5)), REGIONS)
    words = r"^Rule 'unanimous' takes no guard band: its views promise nothing about other scores\. Leave it out\.$"
    with pytest.raises(UsageError, match=words):
        Unanimous().predict(read_scores(counts([5, 0, 0], [0, 4, 0], (0, 0)), (0, 5), slack=1), REGIONS)
    with pytest.raises(UsageError, match="Rule 'unanimous' needs bounds, but they are None"):
        Unanimous().predict(read_scores(counts([5, 0, 0], [0, 4, 0], (0, 0)), None), REGIONS)
