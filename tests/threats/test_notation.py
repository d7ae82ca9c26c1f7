"""Areas, disks, choices and files of masks: which pixels each notation lets the attacker paint."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from bagcert.errors import UsageError
from bagcert.rows.verify.painted import read_mask_files
from bagcert.threats import Footprint, Layer, Patch, RectangleThreat, RegionThreat, Threat, parse_threat
from bagcert.threats.masks_file import read_masks
from bagcert.threats.notation import need_room, shortened
from bagcert.threats.threat import AREAS


def sets(threat: Threat) -> set[bytes]:
    return {mask.numpy().tobytes() for mask in threat.pixels()}


@pytest.mark.parametrize("patch", [5, (5, 5), [5, 5], np.int64(5), "5", "5X5", "(5, 5)"])
def test_sides_are_taken_as_people_say_them(patch: Patch) -> None:
    assert parse_threat(patch, (32, 32)) == parse_threat("5x5", (32, 32))


def test_height_comes_first() -> None:
    assert parse_threat((2, 12), (32, 32)) == parse_threat("2x12", (32, 32))


def near(row: float, column: float, size: tuple[int, int], area: str) -> bool:
    """Does the pixel lie in the area, at least in part? By its corners, as shares of the image."""
    top, bottom = row / size[0], (row + 1) / size[0]
    left, right = column / size[1], (column + 1) / size[1]
    return {
        "upper": top < 0.5,
        "lower": bottom > 0.5,
        "left": left < 0.5,
        "right": right > 0.5,
        "center": bottom > 0.25 and top < 0.75 and right > 0.25 and left < 0.75,
    }[area]


@given(
    size=st.tuples(st.integers(4, 13), st.integers(4, 13)),
    shape=st.sampled_from(["2x2", "1x2", "2x1,1x2", "disk:2", "area:2", "1x1,disk:2"]),
    area=st.sampled_from(sorted(AREAS)),
)
def test_an_area_keeps_the_patches_that_lie_inside_it(size: tuple[int, int], shape: str, area: str) -> None:
    allowed = torch.tensor([[near(row, column, size, area) for column in range(size[1])] for row in range(size[0])])
    limited = parse_threat(",".join(f"{part}@{area}" for part in shape.split(",")), size)
    whole = parse_threat(shape, size)
    inside = [mask for mask in whole.pixels() if not bool((mask & ~allowed).any())]
    assert sets(limited) == {mask.numpy().tobytes() for mask in inside}
    assert limited.number == len(limited.placements()) == len(limited.pixels()) == len(inside)
    assert limited.shapes == (), "none of them may lie anywhere"


def test_each_part_has_its_own_area() -> None:
    threat = parse_threat("2x2@upper, 3x1", (8, 8))
    assert str(threat) == "2x2@upper,3x1"
    assert threat.describe() == "2x2 pixels (6.25 %) in the upper half or 3x1 pixels (4.69 %) of 8x8"
    assert sets(threat) == sets(parse_threat("2x2@upper", (8, 8))) | sets(parse_threat("3x1", (8, 8)))
    assert parse_threat(str(threat), (8, 8)) == threat


@pytest.mark.parametrize(
    ("area", "words"),
    [("upper", "upper half"), ("lower", "lower half"), ("left", "left half"), ("right", "right half")],
)
def test_an_area_is_said_in_words(area: str, words: str) -> None:
    assert parse_threat(f"2x2@{area}", (8, 8)).describe() == f"2x2 pixels (6.25 %) in the {words} of 8x8"


def test_an_area_drops_the_shapes_that_do_not_fit() -> None:
    threat = parse_threat("area:8@upper", (8, 8))
    assert str(threat) == "1x8@upper,2x4@upper,4x2@upper"


DISK = """
.###.
#####
#####
#####
.###.
"""


def test_a_disk_is_the_pixels_near_its_middle() -> None:
    threat = parse_threat("disk:5", (6, 5))
    picture = torch.tensor([[cell == "#" for cell in line] for line in DISK.split()])
    assert isinstance(threat, RegionThreat) and str(threat) == "disk:5"
    assert torch.equal(threat.masks[0, :5], picture) and torch.equal(threat.masks[1, 1:], picture)
    assert threat.number == 2
    counts = [int(parse_threat(f"disk:{side}", (side, side)).pixels().sum()) for side in range(1, 9)]
    assert counts == [1, 4, 9, 12, 21, 32, 37, 52]
    assert parse_threat("disk:3@left", (6, 6)).describe() == "disk:3@left: 4 sets of up to 9 pixels of 6x6"


def test_a_choice_of_forms_is_the_union_of_their_placements() -> None:
    both = parse_threat("disk:4|1x5", (7, 7))
    assert isinstance(both, RegionThreat) and str(both) == "disk:4|1x5"
    assert sets(both) == sets(parse_threat("disk:4", (7, 7))) | sets(parse_threat("1x5", (7, 7)))


@given(
    patch=st.sampled_from(["3x2@lower", "1x2@center,2x1@left", "2x2@right,1x1"]),
    layers=st.lists(st.builds(Layer, st.integers(1, 3), st.integers(1, 2), st.just(1), st.integers(0, 1)), max_size=3),
)
def test_limited_rectangles_reach_what_their_pixels_reach(patch: str, layers: list[Layer]) -> None:
    """The same placements as masks, which know nothing of rows, columns and starts."""
    size = (8, 9)
    try:
        footprint = Footprint.of_layers(layers, size)
    except UsageError:
        return  # the kernels do not fit
    threat = parse_threat(patch, size)
    assert isinstance(threat, RectangleThreat)
    fast, plain = footprint.regions(threat), footprint.regions(RegionThreat(threat.pixels()))
    assert torch.equal(fast.masks(), plain.masks())
    assert torch.equal(fast.placements, plain.placements)
    small, also = fast.maximal(), plain.maximal()
    assert {mask.numpy().tobytes() for mask in small.masks()} == {mask.numpy().tobytes() for mask in also.masks()}


def test_rectangles_need_no_room() -> None:
    assert parse_threat("5x5,2x12", (4000, 3000)).shapes == ((5, 5), (2, 12))


def test_sets_of_any_form_must_fit_into_memory() -> None:
    need_room(2**27, (1, 1), "disk:1")
    need_room(2**17, (8, 128), "disk:1")
    for sets, size in ((2**27 + 1, (1, 1)), (2**17 + 1, (8, 128)), (2**17 + 1, (128, 8))):
        with pytest.raises(UsageError, match=rf"has {sets} places in images of {size[0]}x{size[1]}, too many"):
            need_room(sets, size, "disk:1")


def test_long_texts_are_shown_by_their_beginning() -> None:
    assert shortened("x" * 40) == "x" * 40
    assert shortened("x" * 36 + "yzzzz") == "x" * 36 + "y..."


def saved(path: Path, array: object) -> Path:
    np.save(path, np.asarray(array))
    return path


def test_masks_from_a_file(tmp_path: Path) -> None:
    masks = parse_threat("disk:2", (4, 5)).pixels().numpy()
    threat = read_masks(saved(tmp_path / "masks.npy", masks), (4, 5))
    assert np.array_equal(threat.masks.numpy(), masks)
    assert str(threat).startswith("masks:") and len(str(threat)) == len("masks:") + 16
    turned = read_masks(saved(tmp_path / "turned.npy", np.asfortranarray(masks)), (4, 5))
    assert str(turned) == str(threat), "how an array lies in memory is no matter"
    other = masks.copy()
    other[0, 3, 3] ^= True
    assert str(read_masks(saved(tmp_path / "other.npy", other), (4, 5))) != str(threat)
    assert str(read_masks(saved(tmp_path / "flat.npy", masks.reshape(-1, 5, 4)), (5, 4))) != str(threat)


def test_one_mask_may_stand_alone(tmp_path: Path) -> None:
    threat = read_masks(saved(tmp_path / "mask.npy", np.eye(3, dtype=bool)), (3, 3))
    assert torch.equal(threat.masks, torch.eye(3, dtype=torch.bool)[None])
    assert str(threat) == "masks:5f91badf708bcc0e", "rows name it so"
    with pytest.raises(UsageError, match=r"are for images of 3x3, but these have 5x3\. Make them for this image size"):
        read_masks(tmp_path / "mask.npy", (5, 3))


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (
            np.ones((2, 3, 3)),
            r"must be booleans .*, but are float64 \[2, 3, 3\]\. Convert them by masks\.astype\(bool\)",
        ),
        (np.ones(3, dtype=bool), r"but are bool \[3\]"),
        (np.ones((0, 3, 3), dtype=bool), r"but are bool \[0, 3, 3\]"),
        (np.ones((2, 4, 3), dtype=bool), r"are for images of 4x3, but these have 3x3\. Make them for this image size"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, array: np.ndarray, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_masks(saved(tmp_path / "masks.npy", array), (3, 3))


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "several.npz", np.ones(3))
    for name in ("missing.npy", "text.npy", "objects.npy"):
        with pytest.raises(UsageError, match=rf"{name} cannot be read as masks .*Write it by np\.save\(path, masks\)"):
            read_masks(tmp_path / name, (3, 3))
    for name in ("text.npy", "objects.npy"):
        with pytest.raises(UsageError, match=r"masks \(it must be a \.npy file of booleans\)\. Write it by"):
            read_masks(tmp_path / name, (3, 3))
        with pytest.raises(UsageError, match=r"holds no masks \(it must be a \.npy file of booleans\)\. Pass the"):
            read_mask_files([tmp_path / name])
    with pytest.raises(UsageError, match=r"cannot be read as masks \(.*No such file"):
        read_masks(tmp_path / "missing.npy", (3, 3))
    with pytest.raises(UsageError, match="but are NpzFile"):
        read_masks(tmp_path / "several.npz", (3, 3))


@pytest.mark.parametrize("share", ["0%", "0.00 %", "5x5,0%"])
def test_a_share_of_nothing_is_refused(share: str) -> None:
    with pytest.raises(UsageError, match=r"^A patch of 0.* has no pixels\. Write a share above 0%, like 2\.4%\.$"):
        parse_threat(share, (8, 8))


def test_the_pixels_of_rectangles_are_those_of_their_placements() -> None:
    threat = parse_threat("2x1,1x3", (3, 4))

    def filled(row: int, column: int, height: int, width: int) -> Tensor:
        mask = torch.zeros(3, 4, dtype=torch.bool)
        mask[row : row + height, column : column + width] = True
        return mask

    assert torch.equal(threat.pixels(), torch.stack([filled(*each) for each in threat.placements()]))
