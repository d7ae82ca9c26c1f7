"""Threats as users write them."""

import numpy as np
import pytest
import torch

from bagcert.errors import UsageError
from bagcert.threats import Placement, RectangleThreat, RegionThreat, parse_threat
from bagcert.threats.threat import SeveralThreat


@pytest.mark.parametrize(
    ("text", "size", "shapes"),
    [
        ("5x5", (32, 32), ((5, 5),)),
        (" 24 x 1 ", (32, 32), ((24, 1),)),
        ("2.4%", (32, 32), ((5, 5),)),
        ("0.4%", (32, 32), ((3, 3),)),  # the paper's "0.4 %" is 2x2, which is 0.39 %
        ("0.390625%", (32, 32), ((2, 2),)),  # exactly 4 of 1,024 pixels
        ("2%", (224, 224), ((32, 32),)),
        (".01%", (32, 32), ((1, 1),)),
        ("0.000000001%", (32, 32), ((1, 1),)),
        ("0.0977%", (32, 32), ((2, 2),)),  # a little more than one pixel
        ("1.5625%", (32, 16), ((3, 3),)),  # exactly 8 of 512 pixels
        ("100%", (7, 7), ((7, 7),)),
        ("5x5,2x12", (32, 32), ((5, 5), (2, 12))),
        ("5x5,5x5", (32, 32), ((5, 5),)),
        ("3x1 , area:3 | 10%", (5, 5), ((3, 1), (1, 3), (2, 2))),
        ("5", (32, 32), ((5, 5),)),
        ("5X5", (32, 32), ((5, 5),)),
        ("5×4", (32, 32), ((5, 4),)),
        ("(5, 4)", (32, 32), ((5, 4),)),
        ("(5, 4), (2,12) | 1x1", (32, 32), ((5, 4), (2, 12), (1, 1))),
        ("1x1", (1, 1), ((1, 1),)),
        ("area:24", (32, 32), ((1, 24), (2, 12), (3, 8), (4, 6), (6, 4), (8, 3), (12, 2), (24, 1))),
        ("area:24", (6, 32), ((1, 24), (2, 12), (3, 8), (4, 6), (6, 4))),
    ],
)
def test_parse(text: str, size: tuple[int, int], shapes: tuple[tuple[int, int], ...]) -> None:
    threat = parse_threat(text, size)
    assert isinstance(threat, RectangleThreat)
    assert threat.shapes == shapes
    assert parse_threat(str(threat), size) == threat


@pytest.mark.parametrize(
    ("text", "size", "words"),
    [
        ("33x1", (32, 32), "The patch 33x1 does not fit into an image of 32x32. Choose one from 1x1 to 32x32."),
        ("0x3", (32, 32), "The patch 0x3 does not fit into an image of 32x32. Choose one from 1x1 to 32x32."),
        ("100%", (4, 9), "The patch 6x6 does not fit into an image of 4x9. Choose one from 1x1 to 4x9."),
        (
            "five",
            (32, 32),
            "Cannot read the patch 'five'. Write it like 5x5, 5, (5, 5), 2.4%, area:24, disk:5, "
            "5x5,2x12 or 2*5x5 (height x width).",
        ),
        ("-2", (32, 32), "Cannot read the patch '-2'."),
        ("-2x3", (32, 32), "Cannot read the patch '-2x3'."),
        ("area:37", (6, 6), "No rectangle inside 6x6 has an area of 37. Choose another area."),
        ("area:0", (6, 6), "No rectangle inside 6x6 has an area of 0."),
        (
            "5x5+2x12",
            (32, 32),
            "Patches of which the attacker chooses one are joined by ',', not '+'. Write '5x5,2x12'.",
        ),
        (
            "5,7",
            (32, 32),
            "A single number cannot be joined to others, as in '5,7'. Write height x width, like 5x7, or",
        ),
        (
            "5,6,7",
            (32, 32),
            "as in '5,6,7'. Write height x width, like 5x7, or squares, like 5x5.",
        ),
        ("disk:40,2x2", (100, 110), "The patch 'disk:40,2x2' has 15122 places in images of 100x110, too many for a"),
        ("5x5,", (32, 32), "Cannot read the patch ''."),
        ("5x5@lowr", (32, 32), "Unknown area of the image 'lowr'. Did you mean 'lower'?"),
        ("5x5@", (32, 32), "Unknown area of the image ''."),
        ("5x3@lower", (8, 8), "The patch 5x3 does not fit into the lower half of 8x8. Choose one from 1x1 to 4x8."),
        ("disk:9", (8, 8), "The patch 9x9 does not fit into an image of 8x8."),
        ("disk:5@center", (8, 8), "No patch of 'disk:5@center' lies inside the middle half. Choose a smaller one."),
        ("disk:40", (224, 224), "The patch 'disk:40' has 34225 places in images of 224x224, too many for a shape that"),
        ("disk:2,2x2", (600, 600), "Use the rectangle around it: a proof for that holds for all inside."),
        ("0.0 %", (8, 8), "A patch of 0.0 % has no pixels. Write a share above 0%, like 2.4%."),
        ("0*5x5", (8, 8), "The number of patches must be in 1..9, but is 0. Write 2*5x5."),
        ("10*5x5", (8, 8), "The number of patches must be in 1..9, but is 10. Write 2*5x5."),
        ("masks:0123", (8, 8), "The masks of 'masks:0123' are in a file. Name it by --masks FILE.npy."),
    ],
)
def test_parse_refuses(text: str, size: tuple[int, int], words: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_threat(text, size)
    assert words in str(error.value)


def test_both_forms_are_printed() -> None:
    assert parse_threat("2.4%", (32, 32)).describe() == "5x5 pixels (2.44 %) of 32x32"
    assert parse_threat("1x2,3x1", (4, 5)).describe() == "1x2 pixels (10.00 %) or 3x1 pixels (15.00 %) of 4x5"


def test_a_threat_is_shown_as_it_is_written() -> None:
    masks = torch.ones(3, 4, 5, dtype=torch.bool)
    assert repr(parse_threat("1x2,3x1", (4, 5))) == "RectangleThreat(1x2,3x1 of 4x5)"
    assert repr(parse_threat(masks, (4, 5))) == "RegionThreat(3 sets of 4x5)"
    assert repr(parse_threat("2*1x2", (4, 5))) == "SeveralThreat(2*1x2 of 4x5)"


@pytest.mark.parametrize("count", [1, 9])
def test_one_patch_to_nine_are_several(count: int) -> None:
    one = parse_threat("1x2", (4, 5))
    several = SeveralThreat(one, count)
    assert (several.count, several.one, several.number) == (count, one, one.number)


def test_several_patches_are_written_in_two_ways_and_one_is_one() -> None:
    assert [str(parse_threat(text, (4, 5))) for text in ("2*1x2", "2of1x2", "1*1x2")] == ["2*1x2", "2*1x2", "1x2"]


@pytest.mark.parametrize("text", ["2*1x2", "2*1x2,disk:2", "1x2@lower", "disk:2"])
def test_only_a_single_rectangle_that_may_lie_anywhere_has_shapes(text: str) -> None:
    assert parse_threat(text, (4, 5)).shapes == ()


@pytest.mark.parametrize("text", ["1x2,2x2", "1x2@lower", "2*1x2", "disk:2", "disk:2,1x2", "2*disk:2"])
def test_a_threat_is_made_of_rectangles_or_of_masks(text: str) -> None:
    threat = parse_threat(text, (4, 5))
    assert (threat.rectangles == ()) == (threat.masks is not None)


def test_placements_list_every_place_row_by_row() -> None:
    threat = parse_threat("2x3", (3, 4))
    assert isinstance(threat, RectangleThreat)
    assert threat.placements() == [Placement(row, column, 2, 3) for row, column in ((0, 0), (0, 1), (1, 0), (1, 1))]


def test_region_masks() -> None:
    masks = np.zeros((2, 4, 5), dtype=bool)
    masks[0, 1, 2] = masks[0, 3, 4] = True
    threat = parse_threat(masks, (4, 5))
    assert threat.describe() == "2 sets of up to 2 pixels of 4x5"
    assert str(threat) == "2 sets"
    assert threat.placements() == [Placement(1, 2, 3, 3), Placement(0, 0, 0, 0)]
    masks[:] = True
    assert threat.describe() == "2 sets of up to 2 pixels of 4x5", "the caller's array was kept, not copied"


@pytest.mark.parametrize("masks", [torch.zeros(2, 3, 3), torch.zeros(3, 3, dtype=torch.bool), torch.zeros(0, 3, 3) > 0])
def test_region_masks_refused(masks: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"Sets of pixels must be booleans of shape \[sets, height, width\], but are"):
        parse_threat(masks, (3, 3))


def test_a_threat_to_other_images_is_refused() -> None:
    with pytest.raises(
        UsageError, match=r"The threat is for images of 5x5, but these have 4x4\. Build it for this image"
    ):
        parse_threat(parse_threat("2x2", (5, 5)), (4, 4))


def test_regions_are_described_by_the_largest() -> None:
    masks = torch.zeros(3, 4, 5, dtype=torch.bool)
    masks[0, 1, 2:4] = masks[1, 2, :3] = masks[2, 0, 0] = True
    assert parse_threat(masks, (4, 5)).describe() == "3 sets of up to 3 pixels of 4x5"


@pytest.mark.parametrize("patch", [None, True, 5.0, (5,), (5, 5, 5), ("5", "5"), ["5x5", "2x12"]])
def test_what_is_no_threat_is_refused(patch: object) -> None:
    with pytest.raises(UsageError) as error:
        parse_threat(patch, (8, 8))  # type: ignore[arg-type]
    assert str(error.value) == (
        f"A patch must be text like 5x5, a threat or sets of pixels, but is {patch}. Write height x width."
    )


@pytest.mark.parametrize(
    ("masks", "got"),
    [
        (torch.zeros(2, 3, 3), "torch.float32 [2, 3, 3]"),
        (torch.zeros(3, 3, dtype=torch.bool), "torch.bool [3, 3]"),
        (torch.zeros(2, 0, 3, dtype=torch.bool), "torch.bool [2, 0, 3]"),
    ],
)
def test_the_whole_refusal_of_region_masks(masks: torch.Tensor, got: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_threat(masks, (3, 3))
    assert str(error.value) == (
        f"Sets of pixels must be booleans of shape [sets, height, width], but are {got}. Stack one array per set."
    )


def test_a_threat_keeps_its_own_masks() -> None:
    masks = torch.ones(1, 3, 3, dtype=torch.bool)
    threat = parse_threat(masks, (3, 3))
    masks[:] = False
    assert threat.describe() == "1 set of up to 9 pixels of 3x3"


def test_region_masks_have_their_own_image_size() -> None:
    masks = torch.ones(1, 2, 3, dtype=torch.bool)
    assert RegionThreat(masks).image_size == (2, 3)
    with pytest.raises(TypeError):
        RegionThreat(masks, (4, 4))  # type: ignore[call-arg, arg-type]


def test_an_area_takes_every_shape_that_fits_and_no_other() -> None:
    threat = parse_threat("area:8", (3, 8))
    assert isinstance(threat, RectangleThreat)
    assert threat.shapes == ((1, 8), (2, 4))  # 4x2 is too high


def test_a_threat_to_images_of_another_size_is_refused_by_both_sizes() -> None:
    threat = parse_threat("1x1", (3, 8))
    with pytest.raises(UsageError, match=r"The threat is for images of 3x8, but these have 4x6\. Build it for this"):
        parse_threat(threat, (4, 6))
