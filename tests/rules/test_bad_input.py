"""Every mistake a caller can make with scores: one line that says what was expected, what came and what to do."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bagcert
from bagcert.errors import UsageError
from bagcert.rules import Masked, Monotone, TwoMask, capped_sum, read_scores, weighted_sum
from bagcert.threats import Footprint, parse_threat

VOTES = torch.zeros(2, 3, 6, 6, dtype=torch.int64)
VOTES[:, 1] = 1
LARGE = torch.full((1, 2, 4, 4), 2**50)
SMALL_MASKS = Footprint.identity((6, 6)).regions(parse_threat("1x2", (6, 6))).maximal()
BOUNDS = "Bounds must be two whole numbers, lowest first, but are {}. For votes use (0, 1)."
SLACK = "The slack must be a whole number of score units >= 0, but is {}. Round it up."
AGGREGATOR = (
    "The aggregator must turn int64 [maps, rows, columns] into int64 [maps], but returns {}. "
    "Sum over the last two axes and keep whole numbers."
)
SHAPE = (
    "Scores must have the shape [images, classes, rows, columns], but these have {}. "
    "Add the missing axes (scores[None] makes a batch of one)."
)
FRACTIONS = (
    "Scores must be {}, but some are fractions. Round them to a fixed-point grid, "
    "(scores * 256).round(), and declare their bounds."
)
FINITE = "The scores contain NaN or infinity. Check the network's output."
NUMBERS = "Scores must be a tensor or an array of numbers, but are {}. Convert them by np.array(scores, float)."
PATCH = "The patch {} does not fit into an image of 6x6. Choose one from 1x1 to 6x6."
LARGER = (
    "The threat is larger than the rule's masks: one of its regions lies inside no mask. "
    "Build the rule for this threat, as defense.against(patch) does."
)
DOUBT = "The flags in uncertain must be booleans of shape [2, 3, 6, 6], but are {}. Mark each vote."
OTHERS = "Only votes with bounds=(0, 1) and no slack can be uncertain. Use slack instead."
FALLING = "The aggregator is not monotone: it falls as scores rise. Use another rule."
FIELD = (
    "A centered receptive field must be odd, but this one is {}. "
    "Pass footprint=Footprint.of_layers(...) for a network whose outputs are not centered."
)


def with_value(value: float) -> Tensor:
    scores = VOTES.double()
    scores[1, 2, 3, 4] = value
    return scores


def one_cell(value: int) -> Tensor:
    """The votes, but with this value in the first cell of every map."""
    scores = VOTES.clone()
    scores[:, :, 0, 0] = value
    return scores


def total(maps: Tensor) -> Tensor:
    return maps.sum(dim=(-2, -1))


# What is wrong, the arguments besides the votes, and the whole message.
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "no batch": ({"scores": VOTES[0]}, SHAPE.format("[3, 6, 6]")),
    "five axes": ({"scores": VOTES[None]}, SHAPE.format("[1, 2, 3, 6, 6]")),
    "no rows": ({"scores": VOTES[:, :, :0]}, SHAPE.format("[2, 3, 0, 6]")),
    "no columns": ({"scores": VOTES[..., :0]}, SHAPE.format("[2, 3, 6, 0]")),
    "one class": (
        {"scores": VOTES[:, :1]},
        "The number of classes is 1. Give at least 2: a single class has no rival.",
    ),
    "no class": ({"scores": VOTES[:, :0]}, "The number of classes is 0. Give at least 2: a single class has no rival."),
    "fractions as votes": ({"scores": with_value(0.5)}, FRACTIONS.format("votes of 0 or 1")),
    "fractions": ({"scores": with_value(0.5), "bounds": (0, 9)}, FRACTIONS.format("whole numbers")),
    "fractions without bounds": ({"scores": with_value(0.5), "bounds": None}, FRACTIONS.format("whole numbers")),
    "nan": ({"scores": with_value(float("nan"))}, FINITE),
    "infinity": ({"scores": with_value(float("inf"))}, FINITE),
    "minus infinity": ({"scores": with_value(float("-inf")), "bounds": None}, FINITE),
    "complex": (
        {"scores": VOTES.to(torch.complex64)},
        "Scores must be real, but are torch.complex64. Take the real part or the magnitude.",
    ),
    "a list": ({"scores": [["x"]]}, NUMBERS.format("list")),
    "words": ({"scores": np.full((2, 3, 6, 6), "1")}, NUMBERS.format("<U1")),
    "objects": ({"scores": np.full((2, 3, 6, 6), None)}, NUMBERS.format("object")),
    "long floats": ({"scores": np.zeros((2, 3, 6, 6), np.longdouble)}, NUMBERS.format(np.dtype(np.longdouble))),
    "foreign bytes": ({"scores": np.zeros((2, 3, 6, 6), ">f4")}, NUMBERS.format(">f4")),
    "above the bounds": (
        {"scores": with_value(2)},
        "Scores must lie in 0..1, but these are in 0..2. Declare their bounds, or bounds=None for two-mask.",
    ),
    "below the bounds": (
        {"scores": with_value(-1), "bounds": (0, 5)},
        "Scores must lie in 0..5, but these are in -1..1. Declare their bounds, or bounds=None for two-mask.",
    ),
    "bounds reversed": ({"bounds": (1, 0)}, BOUNDS.format("(1, 0)")),
    "bounds equal": ({"bounds": (1, 1)}, BOUNDS.format("(1, 1)")),
    "a fractional lower bound": ({"bounds": (0.0, 1)}, BOUNDS.format("(0.0, 1)")),
    "a fractional upper bound": ({"bounds": (0, 1.5)}, BOUNDS.format("(0, 1.5)")),
    "three bounds": ({"bounds": (0, 1, 2)}, BOUNDS.format("(0, 1, 2)")),
    "one bound": ({"bounds": 1}, BOUNDS.format("1")),
    "scores too large": (
        {"scores": LARGE, "bounds": None},
        "Scores must lie within ±70368744177664, but reach 1125899906842624. Use a coarser fixed-point grid.",
    ),
    "bounds too large": (
        {"bounds": (0, 2**60)},
        f"Scores must lie within ±{2**53 // 288}, but reach {2**60}. Use a coarser fixed-point grid.",
    ),
    "bounds of numpy too large": (
        {"bounds": (np.int64(0), np.int64(2**62)), "rule": "largest-region"},
        f"Scores must lie within ±{2**53 // 288}, but reach {2**62}. Use a coarser fixed-point grid.",
    ),
    "slack too large": (
        {"bounds": (0, 1), "slack": 2**45},
        f"Scores must lie within ±{2**53 // 288}, but reach {2**45 + 1}. Use a coarser fixed-point grid.",
    ),
    "unsigned beyond int64": (
        {"scores": np.full((1, 2, 4, 4), 2**64 - 1, np.uint64), "bounds": None},
        "Some unsigned scores are 2**63 or more. Use a coarser fixed-point grid.",
    ),
    "negative slack": ({"slack": -1}, SLACK.format("-1")),
    "fractional slack": ({"slack": 0.5}, SLACK.format("0.5")),
    "nan as slack": ({"slack": float("nan")}, SLACK.format("nan")),
    "uncertain numbers": ({"uncertain": VOTES}, DOUBT.format("torch.int64 [2, 3, 6, 6]")),
    "uncertain words": ({"uncertain": np.array([{}])}, NUMBERS.format("object").replace("Scores", "Flags")),
    "uncertain images": ({"uncertain": VOTES[:, 0] > 0}, DOUBT.format("torch.bool [2, 6, 6]")),
    "uncertain with slack": ({"uncertain": VOTES > 0, "slack": 1}, OTHERS),
    "uncertain with bounds": ({"uncertain": VOTES > 0, "bounds": (0, 2)}, OTHERS),
    "uncertain without bounds": ({"uncertain": VOTES > 0, "bounds": None}, OTHERS),
    "a rule misspelt": (
        {"rule": "tow-mask"},
        "Unknown rule 'tow-mask'. Did you mean 'two-mask'? "
        "Known: detect, every-region, largest-region, masked, monotone, two-mask, unanimous.",
    ),
    "a rule unheard of": (
        {"rule": "zzz"},
        "Unknown rule 'zzz'. Known: detect, every-region, largest-region, masked, monotone, two-mask, unanimous.",
    ),
    "a rule that is none": (
        {"rule": []},
        "A rule must be a name like 'two-mask' or an object like TwoMask(), but is list. Known names: "
        "detect, every-region, largest-region, masked, monotone, two-mask, unanimous.",
    ),
    "the class of a rule": (
        {"rule": TwoMask},
        "A rule must be a name like 'two-mask' or an object like TwoMask(), but is the class TwoMask. Known names: "
        "detect, every-region, largest-region, masked, monotone, two-mask, unanimous.",
    ),
    "monotone by name": (
        {"rule": "monotone"},
        "Rule 'monotone' needs an aggregator. In Python, pass rule=Monotone(aggregate).",
    ),
    "an aggregator of floats": (
        {"rule": Monotone(lambda maps: total(maps).float())},
        AGGREGATOR.format("torch.float32 [6]"),
    ),
    "an aggregator of rows": (
        {"rule": Monotone(lambda maps: maps.sum(dim=-1))},
        AGGREGATOR.format("torch.int64 [6, 6]"),
    ),
    "a falling aggregator": ({"rule": Monotone(lambda maps: -total(maps))}, FALLING),
    "an aggregator that falls at the top": (
        {"scores": one_cell(0), "rule": Monotone(lambda maps: total(maps) % 36)},
        FALLING,
    ),
    "an aggregator that falls at the bottom": (
        {"scores": one_cell(1), "rule": Monotone(lambda maps: (total(maps) - 1) % 37)},
        FALLING,
    ),
    "masked with negative scores": (
        {"rule": "masked", "bounds": (-1, 1), "patch": "1x1"},
        "Rule 'masked' needs scores of at least 0, but their bounds start at -1. Shift them.",
    ),
    "an even receptive field": ({"receptive_field": 4}, FIELD.format("4x4")),
    "a receptive field of nothing": (
        {"receptive_field": 0},
        "Receptive field and stride must be at least 1, but one is 0. Give pixels.",
    ),
    "a stride of nothing": (
        {"stride": (1, -2), "image_size": 6},
        "Receptive field and stride must be at least 1, but one is -2. Give pixels.",
    ),
    "a fractional receptive field": (
        {"receptive_field": 1.5},
        "A size must be a whole number of pixels, or rows and columns, but is 1.5. Give 7 or (7, 5).",
    ),
    "another image size": (
        {"image_size": (6, 9)},
        "Receptive field 3x3 and stride 1x1 on 6x9 images make a score grid of 6x9, but this one is 6x6. "
        "Check image_size and stride, or pass footprint=Footprint.of_layers(...).",
    ),
    "the footprint of another network": (
        {"footprint": Footprint.identity((5, 7))},
        "The scores lie on a 6x6 grid, but the footprint on a 5x7 grid. "
        "Give the footprint of the network that made the scores.",
    ),
}


@pytest.mark.parametrize("call", [bagcert.certify_scores, bagcert.certified_size], ids=["certificate", "size"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_in_one_line(mistake: str, call: Callable[..., object]) -> None:
    arguments, words = MISTAKES[mistake]
    with pytest.raises(UsageError) as error:
        call(**{"scores": VOTES, "receptive_field": 3, "patch": "2x2", **arguments})
    assert str(error.value) == words
    assert re.fullmatch(r"[A-Z].*\.", words) and "\n" not in words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"patch": "7x1"}, PATCH.format("7x1")),
        ({"patch": "1x7"}, PATCH.format("1x7")),
        ({"patch": "0x1"}, PATCH.format("0x1")),
        ({"patch": "1x0"}, PATCH.format("1x0")),
        ({"patch": "2x2", "receptive_field": 1, "rule": TwoMask(SMALL_MASKS)}, LARGER),
        ({"patch": "2x2", "receptive_field": 1, "rule": TwoMask(SMALL_MASKS), "exact": False}, LARGER),
        ({"patch": "1x3", "receptive_field": 1, "rule": Masked("1/2", SMALL_MASKS)}, LARGER),
        ({"patch": "1x2,2x1", "receptive_field": 1, "rule": Masked("1/2", SMALL_MASKS)}, LARGER),
    ],
)
def test_threats_that_do_not_fit(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as error:
        bagcert.certify_scores(VOTES, **arguments)
    assert str(error.value) == words


@pytest.mark.parametrize("rule", ["largest-region", "every-region", "masked", Monotone(capped_sum(9))])
def test_rules_that_need_bounds_say_so(rule: Any) -> None:
    name = rule if isinstance(rule, str) else rule.name
    with pytest.raises(UsageError) as error:
        bagcert.certify_scores(VOTES, "1x1", 3, rule=rule, bounds=None)
    assert str(error.value) == f"Rule '{name}' needs bounds, but they are None. Declare bounds=(lowest, highest) score."


def test_two_mask_needs_no_bounds() -> None:
    shifted = bagcert.certify_scores(VOTES * 10 - 5, "1x1", 3, bounds=None)
    assert shifted.certified.tolist() == [True, True]


@pytest.mark.parametrize("name", ["masked", "two-mask"])
def test_sizes_under_masks_need_their_threat(name: str) -> None:
    with pytest.raises(UsageError) as error:
        bagcert.certified_size(VOTES, 3, rule=name)
    assert str(error.value) == (
        f"The masks of '{name}' are built for a threat, but none is given. Pass one, as in patch='8x8'."
    )


@pytest.mark.parametrize("threshold", ["x", "1/0", None, float("nan"), float("inf"), "1/2/3", np.float32(0.5)])
def test_thresholds_that_are_no_fraction(threshold: Any) -> None:
    with pytest.raises(UsageError) as error:
        Masked(threshold)
    assert str(error.value) == f"The threshold '{threshold}' is not a fraction. Write p/q, like 1/2."


@pytest.mark.parametrize("threshold", ["3/2", 1, "1", "-1/2", -1, 0.5, 0.0, "1/1025", "2/1025", np.float64(0.5), 0.7])
def test_thresholds_that_are_not_exact_or_out_of_range(threshold: Any) -> None:
    with pytest.raises(UsageError) as error:
        Masked(threshold)
    assert str(error.value) == (
        f"The threshold must be an exact fraction p/q with 0 <= p/q < 1 and q <= 1024, but is {threshold}. "
        "Write it like '1/2'."
    )


@pytest.mark.parametrize(("threshold", "share"), [("1/1024", (1, 1024)), ("2/6", (1, 3)), (0, (0, 1)), ("0.5", (1, 2))])
def test_exact_thresholds(threshold: Any, share: tuple[int, int]) -> None:
    assert Masked(threshold).share == share


@pytest.mark.parametrize("weights", [torch.ones(6, 6), torch.tensor([[3, -1, 0]]), torch.tensor([[3, 1025]])])
def test_weights_that_are_not_whole(weights: Tensor) -> None:
    with pytest.raises(UsageError) as error:
        weighted_sum(weights)
    assert str(error.value) == "Weights must be whole numbers in 0..1024. Scale and round them."


def test_weights_from_0_to_1024() -> None:
    aggregate = weighted_sum(torch.tensor([[0, 1024]]))
    assert aggregate(torch.tensor([[[5, 2]]])).tolist() == [2048]
    assert aggregate(torch.zeros(4, 1, 2, device="meta")).shape == (4,), "weights follow the maps to their device"


def test_regions_of_another_grid_are_refused() -> None:
    regions = Footprint.identity((4, 6)).regions(parse_threat("1x1", (4, 6)))
    for call in (TwoMask().certify, TwoMask().predict):
        with pytest.raises(UsageError) as error:
            call(read_scores(VOTES[:, :, :5, :3]), regions)
        assert str(error.value) == (
            "The scores lie on a 5x3 grid, but the regions on a 4x6 grid. "
            "Give the footprint of the network that made the scores."
        )
