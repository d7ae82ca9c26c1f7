"""The second opinion agrees with every rule, and finds what was tampered with."""

import ast
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import bagcert
from bagcert.cli.verify import words
from bagcert.errors import UsageError
from bagcert.rows.format import Evaluation, read_meta
from bagcert.rows.header import describe
from bagcert.rows.stored_scores import read_chunk, store_scores
from bagcert.rows.verify import check
from bagcert.rows.verify.check import checker_for, verify_rows
from bagcert.rows.verify.painted import read_mask_files, rectangles
from bagcert.rows.verify.reach import NONE, blind_views, field_of, maximal_reach
from bagcert.rows.write import Plan, write_rows
from bagcert.rules import rules_for
from bagcert.scorers.footprint_table import layer_table, read_footprint
from bagcert.scorers.views import HiddenRectangles, HiddenSets, runs
from bagcert.threats import Footprint, Layer, parse_threat
from bagcert.threats.masks_file import read_masks
from tests.rows.digit_runs import DIGITS, save_digit_run, save_view_run
from tests.rows.forging import edit_lines, edit_meta, lines_of, unfinish, write_lines

pytestmark = pytest.mark.slow

TEST = DIGITS.split("test")
PATCHES = ("1x1", "2x2,1x3", "area:4", "5%")
EVERYTHING = [Evaluation(patch, rule) for patch in PATCHES for rule in rules_for(views=False)]
ALERTING = [Evaluation("1x1", "detect"), Evaluation("2x2,1x3", "detect:3"), Evaluation("area:4", "two-mask:2")]


def rows_of(run: Path, evaluations: list[Evaluation], images: int = 25) -> Path:
    defense = bagcert.load(run)
    path = run.parent / "rows.jsonl"
    header = describe("digits", defense, DIGITS, "test")
    write_rows(path, defense, Plan(evaluations, images, scores=True), TEST, header)
    return path


@pytest.fixture
def rows(run: Path) -> Path:
    return rows_of(run, EVERYTHING)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("step", ["heaviside", "sigmoid"])
def test_all_rules_hold(tmp_path: Path, step: str, stride: int) -> None:
    path = rows_of(save_digit_run(tmp_path / "run", step, stride=stride), EVERYTHING)
    counted: list[int] = []
    verdict = verify_rows(path, counted.append)
    assert verdict.problems == []
    assert (verdict.images, verdict.certificates, sum(counted)) == (25, 25 * len(EVERYTHING), 25)


@pytest.mark.parametrize("step", ["sigmoid", "logits"])
def test_alerts_hold(tmp_path: Path, step: str) -> None:
    path = rows_of(save_digit_run(tmp_path / "run", step), [Evaluation("1x1", "two-mask"), *ALERTING], images=96)
    assert verify_rows(path).problems == []
    plain, *alerting = ([line for line in lines_of(path) if line["rule"] == rule] for rule in RULES_THERE)
    assert not any("alert" in line or "detectable" in line for line in plain)
    told = {(line["alert"], line["detectable"]) for lines in alerting for line in lines}
    assert {(False, True), (True, False)} <= told and (True, True) not in told
    assert not any(line["certified"] for lines in alerting[:2] for line in lines)
    assert len({line["certified_square"] for line in alerting[0]}) > 1


RULES_THERE = ["two-mask", *(entry.rule for entry in ALERTING)]


@pytest.mark.parametrize("entry", ALERTING, ids=lambda entry: entry.rule)
def test_wrong_alerts_are_found(tmp_path: Path, entry: Evaluation) -> None:
    path = rows_of(save_digit_run(tmp_path / "run", "sigmoid"), [entry])
    edit_lines(path, lambda line: line.update(alert=not line["alert"]), image=3)
    edit_lines(path, lambda line: line.update(detectable=not line["detectable"]), image=4)
    edit_lines(path, lambda line: line.update(certified=not line["certified"]), image=5)
    edit_lines(path, lambda line: line.update(lead=line["lead"] + 1), image=6)
    found = {problem.image: problem.words for problem in verify_rows(path).problems}
    assert f"{entry.patch} {entry.rule}: alert " in found[3]
    assert f"{entry.patch} {entry.rule}: detectable " in found[4]
    assert "row says otherwise" in found[5] and "lead" in found[6]


def test_records_without_their_alerts_and_other_thresholds_are_refused(tmp_path: Path) -> None:
    path = rows_of(save_digit_run(tmp_path / "run"), ALERTING[:1])
    edit_meta(path, lambda meta: meta["evaluations"][0].update(rule="every-region:3"))
    edit_lines(path, lambda line: line.update(rule="every-region:3"))
    with pytest.raises(UsageError, match="Rule 'every-region:3' in the rows cannot be verified"):
        verify_rows(path)
    edit_meta(path, lambda meta: meta["evaluations"][0].update(rule="detect:1"))
    edit_lines(path, lambda line: line.update(rule="detect:1"))
    assert any("lead" in problem.words for problem in verify_rows(path).problems)
    edit_lines(path, lambda line: line.pop("alert"))
    with pytest.raises(UsageError, match="KeyError: 'alert'"):
        verify_rows(path)


def test_logits_hold(tmp_path: Path) -> None:
    run = save_digit_run(tmp_path / "run", "logits", "two-mask")
    assert verify_rows(rows_of(run, [Evaluation("2x2", "two-mask")])).problems == []


NOTATIONS = ("3", "3X2", "(2, 3) | 1x4", "disk:4", "3x2@lower", "2x2@upper,1x4@left", "disk:3@right,2x2@center")


def test_every_notation_holds(tmp_path: Path) -> None:
    run, rules = save_digit_run(tmp_path / "run"), rules_for(views=False)
    path = rows_of(run, [Evaluation(patch, rule) for patch in NOTATIONS for rule in rules], images=8)
    assert verify_rows(path).problems == []
    edit_lines(path, lambda line: line.update(lead=line["lead"] + 1), image=3, patch="disk:4", rule="two-mask")
    assert [problem.image for problem in verify_rows(path).problems] == [3]


SEVERAL = ("2*1x1", "2of1x2,2x1", "2*disk:2@upper")


@pytest.mark.parametrize("step", ["heaviside", "logits"])
def test_several_patches_hold(tmp_path: Path, step: str) -> None:
    sums = () if step == "logits" else ("every-region", "largest-region")
    entries = [Evaluation(patch, rule) for patch in SEVERAL for rule in ("two-mask", "detect", *sums)]
    entries += [Evaluation("2*1x1", rule) for rule in ("two-mask:3", "detect:3")]
    entries += [Evaluation("4*1x1", rule) for rule in sums]
    path = rows_of(save_digit_run(tmp_path / "run", step, "two-mask"), entries, images=12)
    assert verify_rows(path).problems == []
    for entry in entries:
        edit_lines(path, lambda line: line.update(certified=not line["certified"]), image=5, **asdict(entry))
    found = [problem.words for problem in verify_rows(path).problems if problem.image == 5]
    assert all(any(words.startswith(f"{each.patch} {each.rule}: ") for words in found) for each in entries)
    outcomes = {(line["alert"], line["detectable"]) for line in lines_of(path) if "alert" in line}
    assert step == "heaviside" or len(outcomes) > 1
    edit_lines(path, lambda line: "alert" in line and line.update(alert=not line["alert"]), image=6)
    edit_lines(path, lambda line: "alert" in line and line.update(detectable=not line["detectable"]), image=7)
    problems = verify_rows(path).problems
    for image, field in ((6, "alert"), (7, "detectable")):
        told = [problem.words for problem in problems if problem.image == image]
        wanted = [each for each in entries if each.rule not in ("two-mask", *sums)]
        assert all(any(each.startswith(f"{entry.patch} {entry.rule}: {field}") for each in told) for entry in wanted)


def test_several_patches_and_other_rules_are_refused(rows: Path) -> None:
    edit_meta(
        rows, lambda meta: [entry.update(patch="2*1x1") for entry in meta["evaluations"] if entry["patch"] == "1x1"]
    )
    with pytest.raises(UsageError, match="Rule 'masked' in the rows cannot be verified for 2 patches at once"):
        verify_rows(rows)


def test_masks_from_files_hold(run: Path, tmp_path: Path) -> None:
    masks = parse_threat("disk:4", (8, 8)).pixels().numpy()[::2]
    np.save(tmp_path / "masks.npy", masks)
    threat = read_masks(tmp_path / "masks.npy", (8, 8))
    path, defense = tmp_path / "rows.jsonl", bagcert.load(run)
    plan = Plan([Evaluation(str(threat), "two-mask")], 8, True, {str(threat): threat})
    write_rows(path, defense, plan, TEST, describe("digits", defense, DIGITS, "test"))
    assert verify_rows(path, masks=read_mask_files([tmp_path / "masks.npy"])).problems == []
    with pytest.raises(UsageError, match=f"The rows name their masks as '{threat}', but no such file is given"):
        verify_rows(path)
    np.save(tmp_path / "masks.npy", masks[1:])
    with pytest.raises(UsageError, match="Pass it by --masks"):
        verify_rows(path, masks=read_mask_files([tmp_path / "masks.npy"]))
    np.save(tmp_path / "without-pixels.npy", masks[:, :0])
    (tmp_path / "text.npy").write_text("no array")
    for name in ("without-pixels", "text"):
        with pytest.raises(UsageError, match=rf"{name}\.npy holds no masks .*\. Pass the file that was certified\."):
            read_mask_files([tmp_path / f"{name}.npy"])


VIEWS = [Evaluation("1x2", "unanimous")]


@pytest.mark.parametrize(("patch", "shift"), [("2x1", 0.5), ("1x3", 0.5), ("1x2,2x1", 0.6)])
def test_views_hold(tmp_path: Path, patch: str, shift: float) -> None:
    path = rows_of(save_view_run(tmp_path / "run", shift), [Evaluation(patch, "unanimous")])
    assert verify_rows(path).problems == []
    proven = [line["certified"] for line in lines_of(path)]
    assert 0 < sum(proven) < len(proven), "or the test would be empty"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda line: line.update(certified=not line["certified"]), "row says otherwise"),
        (lambda line: line.update(predicted=(line["predicted"] + 1) % 10), "row says"),
        (lambda line: line.update(lead=line["lead"] + 1), "lead"),
        (lambda line: line.update(certified_square=7), "no proof for 7x7"),
        (lambda line: line.update(certified_square=9), "no proof for 9x9"),
    ],
)
def test_wrong_rows_of_views_are_found(tmp_path: Path, edit: Callable[[dict[str, Any]], object], words: str) -> None:
    path = rows_of(save_view_run(tmp_path / "run"), VIEWS)
    edit_lines(path, edit, image=7)
    problems = verify_rows(path).problems
    assert any(problem.image == 7 and words in problem.words for problem in problems)
    assert {problem.image for problem in problems} <= {7, None}


def test_views_that_do_not_agree_are_found(tmp_path: Path) -> None:
    path = rows_of(save_view_run(tmp_path / "run"), VIEWS)
    chunk = path.with_name("rows.scores") / "00000000.safetensors"
    scores = read_chunk(chunk, (10, *read_meta(path).header["footprint"]["grid"]))
    scores[5, :2, 0, 0] = 9
    store_scores(chunk.parent, 0, scores)
    found = [problem.words for problem in verify_rows(path).problems if problem.image == 5]
    assert any("views are unanimous about two classes" in words for words in found)


@pytest.mark.parametrize("patch", ["1x1", "3x2", "2x3,1x4", "area:4", "3x2@lower", "disk:3@right", "disk:4,1x2@center"])
@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_blind_views_are_those_outside_the_footprint(patch: str, most: int) -> None:
    """The two were written apart; they must give the same sets."""
    hidden = HiddenRectangles.covering((3, 4), (8, 9), most)
    table = {"image_size": [8, 9], "grid": list(hidden.footprint.grid)}
    table["hidden"] = {"rows": runs(hidden.rows), "columns": runs(hidden.columns)}  # type: ignore[assignment]
    regions = hidden.footprint.regions(parse_threat(patch, (8, 9)))
    assert np.array_equal(blind_views(table, patch), ~regions.masks().numpy())


@pytest.mark.parametrize("patch", ["1x1", "3x2", "2x1,1x4", "disk:3", "2x2@left"])
def test_views_that_hide_sets_of_any_form_are_found_twice(patch: str) -> None:
    sets = torch.rand(7, 8, 9, generator=torch.Generator().manual_seed(0)) < 0.8
    hidden = HiddenSets(sets)
    table = {"image_size": [8, 9], "grid": list(hidden.footprint.grid), "hidden": hidden.table()}
    regions = hidden.footprint.regions(parse_threat(patch, (8, 9)))
    assert np.array_equal(blind_views(table, patch), ~regions.masks().numpy())
    assert read_footprint(json.loads(json.dumps(table))).same(hidden.footprint)
    ours = regions.maximal().masks().numpy()
    theirs = maximal_reach(table, patch).masks()
    assert {each.tobytes() for each in ours} == {each.tobytes() for each in theirs}
    with pytest.raises(UsageError, match=r"has a grid of \[9, 1\], but its views give \[8, 1\]"):
        blind_views({**table, "grid": [9, 1]}, patch)


def test_the_rule_of_views_takes_no_other_scores(rows: Path) -> None:
    edit_meta(rows, lambda meta: meta["evaluations"][-1].update(rule="unanimous"))
    with pytest.raises(
        UsageError, match=r"Rule 'unanimous' does not fit the scores in the rows, which are not of views"
    ):
        verify_rows(rows)


@pytest.mark.parametrize("patch", ["1x1", "3x2", "2x3,1x4", "3x2@lower"])
def test_what_a_patch_reaches_of_views_is_found_twice(patch: str) -> None:
    hidden = HiddenRectangles.covering((3, 4), (8, 9), 3)
    table = {"image_size": [8, 9], "grid": list(hidden.footprint.grid)}
    table["hidden"] = {"rows": runs(hidden.rows), "columns": runs(hidden.columns)}  # type: ignore[assignment]
    ours = hidden.footprint.regions(parse_threat(patch, (8, 9))).maximal().masks().numpy()
    theirs = maximal_reach(table, patch).masks()
    assert {each.tobytes() for each in ours} == {each.tobytes() for each in theirs} and len(ours) == len(theirs)


@pytest.mark.parametrize("entry", EVERYTHING)
def test_a_flipped_certificate_is_found(rows: Path, entry: Evaluation) -> None:
    edit_lines(rows, lambda line: line.update(certified=not line["certified"]), image=7, **asdict(entry))
    problems = verify_rows(rows).problems
    name = f"{entry.patch} {entry.rule}: "
    assert (7, True) in [(problem.image, problem.words.startswith(name)) for problem in problems]
    assert {problem.image for problem in problems} <= {7, None}


@pytest.mark.parametrize("entry", EVERYTHING[:4])
def test_a_wrong_class_is_found(rows: Path, entry: Evaluation) -> None:
    edit_lines(rows, lambda line: line.update(predicted=(line["predicted"] + 1) % 10), image=3, **asdict(entry))
    assert "row says" in next(problem.words for problem in verify_rows(rows).problems if problem.image == 3)


@pytest.mark.parametrize(
    ("place", "edit", "words"),
    [
        (0, lambda line: line.update(predicted=10), "class 10 of 10"),
        (0, lambda line: line.update(lead=line["lead"] + 1), "lead"),
        (1, lambda line: line.update(certified_square=8), "no proof for 8x8"),
        (3, lambda line: line.update(certified_square=2), "no proof for 2x2"),
        (3, lambda line: line.update(certified_square=9), "no proof for 9x9"),
        (2, lambda line: line.update(scores_sha256="0" * 16), "not those that the row names"),
        (2, lambda line: line.update(label=10), "label 10 of 10 classes"),
        (2, lambda line: line.update(label=(line["label"] + 1) % 10), "more than one label"),
        (2, lambda line: line.update(rule="two-mosk"), "1x1 two-mosk: nobody asked for this row"),
        (2, lambda line: line.update(rule="two-mosk"), "1x1 masked: no row"),
    ],
)
def test_other_wrong_entries_are_found(
    rows: Path, place: int, edit: Callable[[dict[str, Any]], object], words: str
) -> None:
    edit_lines(rows, edit, image=3, **asdict(EVERYTHING[place]))
    assert any(problem.image == 3 and words in problem.words for problem in verify_rows(rows).problems)


def test_a_missing_and_a_doubled_row_are_found(rows: Path) -> None:
    lines = [line for line in lines_of(rows) if line["image"] != 4]
    doubled = [line for line in lines if line["image"] == 8]
    write_lines(rows, [*doubled, *lines])
    found = {(problem.image, problem.words) for problem in verify_rows(rows).problems}
    assert (4, "no row") in found and (8, "1x1 two-mask: more than one row") in found
    write_lines(rows, [*lines_of(rows), *doubled])
    with pytest.raises(UsageError, match="more text than"):
        verify_rows(rows)


def test_altered_scores_are_found(rows: Path) -> None:
    chunk = rows.with_name("rows.scores") / "00000000.safetensors"
    scores = read_chunk(chunk, (10, 8, 8))
    scores[5, 2, 0, 0] ^= 1
    store_scores(chunk.parent, 0, scores)
    assert {problem.image for problem in verify_rows(rows).problems} == {5}
    scores[6] = 2
    store_scores(chunk.parent, 0, scores)
    assert (6, "scores outside 0..1") in [(problem.image, problem.words) for problem in verify_rows(rows).problems]
    store_scores(chunk.parent, 0, scores[:20])
    assert (20, "no scores") in [(problem.image, problem.words) for problem in verify_rows(rows).problems]


@pytest.mark.parametrize("key", ["clean_accuracy", "certified_accuracy", "interval"])
def test_a_wrong_accuracy_is_found(rows: Path, key: str) -> None:
    def worse(meta: dict[str, Any]) -> None:
        meta["results"][2][key] = [0.1, 0.2] if key == "interval" else meta["results"][2][key] + 0.01

    edit_meta(rows, worse)
    (problem,) = verify_rows(rows).problems
    assert problem.image is None and f"1x1 masked: {key}" in problem.words
    edit_meta(rows, lambda meta: meta["results"].pop())
    assert "accuracies of other evaluations" in verify_rows(rows).problems[0].words
    unfinish(rows)
    assert "the rows are not finished" in verify_rows(rows).problems[0].words


def test_a_wrong_label_is_found_through_the_accuracies(rows: Path) -> None:
    first = next(line for line in lines_of(rows) if line["image"] == 3)
    label, predicted = first["label"], first["predicted"]
    edit_lines(rows, lambda line: line.update(label=predicted if label != predicted else (label + 1) % 10), image=3)
    assert any("clean_accuracy" in problem.words for problem in verify_rows(rows).problems)


def test_rows_without_scores_cannot_be_verified(run: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.jsonl", bagcert.load(run), Plan(EVERYTHING[:1], 5), TEST, {})
    with pytest.raises(UsageError, match=r"rows.jsonl was certified without scores\. Certify with --scores\."):
        verify_rows(tmp_path / "rows.jsonl")


@settings(max_examples=60, deadline=None)
@given(
    kernels=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2)), max_size=3),
    size=st.tuples(st.integers(9, 12), st.integers(9, 12)),
    patch=st.sampled_from(["1x1", "2x3", "3x1,1x4", "area:6", "2x2,area:3", "4%", "7x7", *NOTATIONS]),
)
def test_reach_agrees_with_footprints(
    kernels: list[tuple[int, int, int, int]], size: tuple[int, int], patch: str
) -> None:
    """The two were written apart; they must give the same sets."""
    try:
        footprint = Footprint.of_layers([Layer(*numbers) for numbers in kernels], size)
    except UsageError:
        return  # the kernels do not fit
    keys = ("kernel", "stride", "dilation", "padding")
    layers = [{key: [number] * 2 for key, number in zip(keys, numbers, strict=True)} for numbers in kernels]
    windows = maximal_reach({"image_size": list(size), "grid": list(footprint.grid), "layers": layers}, patch)
    regions = footprint.regions(parse_threat(patch, size)).maximal()
    assert {mask.tobytes() for mask in windows.masks()} == {mask.numpy().tobytes() for mask in regions.masks()}
    maps = np.arange(footprint.grid[0] * footprint.grid[1], dtype=np.float64).reshape(footprint.grid)
    assert sorted(windows.inside(maps)) == sorted(regions.sums(torch.from_numpy(maps).long()[None])[0].tolist())


@pytest.mark.parametrize("patch", ["1x1", "2x3", "3x1,1x4", "disk:2"])
def test_reach_in_several_maps_agrees_with_footprints(patch: str) -> None:
    size = (6, 7)
    footprint = Footprint.interleaved([Footprint.centered(field, 1, size, size) for field in (3, 1, 5)])
    maps = [
        {"layers": [{"kernel": [field] * 2, "stride": [1, 1], "dilation": [1, 1], "padding": [field // 2] * 2}]}
        for field in (3, 1, 5)
    ]
    table: dict[str, Any] = {"image_size": list(size), "grid": [18, 7], "maps": maps}
    regions = footprint.regions(parse_threat(patch, size)).maximal()
    found = maximal_reach(table, patch).masks()
    assert {mask.tobytes() for mask in found} == {mask.numpy().tobytes() for mask in regions.masks()}
    with pytest.raises(UsageError, match=r"a grid of \[18, 7\], but its 'layers' give \[12, 7\]\. Certify again\."):
        maximal_reach({**table, "maps": maps[:2]}, patch)
    with pytest.raises(UsageError, match=r"names neither layers nor pixels nor kept\."):
        maximal_reach({**table, "maps": []}, patch)


@pytest.mark.parametrize(
    ("patch", "shapes"), [("2.4%", [(5, 5)]), ("0.4%", [(3, 3)]), ("0.39%", [(2, 2)]), ("100%", [(32, 32)])]
)
def test_shares_are_the_smallest_square(patch: str, shapes: list[tuple[int, int]]) -> None:
    assert rectangles(patch, 32, 32) == shapes


def test_wrong_headers_are_refused(run: Path, tmp_path: Path) -> None:
    for facts, refusal in (
        ({}, r"rows\.jsonl holds no images or does not name their weights\. Make it again with bagcert certify"),
        (
            {"weights_sha256": "0"},
            r"rows\.jsonl is not as bagcert writes rows \(KeyError: 'classes'\)\. Make it again with",
        ),
    ):
        path = tmp_path / str(len(facts)) / "rows.jsonl"
        write_rows(path, bagcert.load(run), Plan(EVERYTHING[:1], 5, scores=True), TEST, facts)
        with pytest.raises(UsageError, match=refusal):
            verify_rows(path)
    with pytest.raises(
        UsageError, match=r"Cannot read the patch '5by5' in the rows\. Only rectangles, disks and masks can"
    ):
        rectangles("5by5", 32, 32)
    with pytest.raises(UsageError, match=r"has a grid of \[7, 7\], but its 'layers' give \[8, 8\]\. Certify again\."):
        maximal_reach({"image_size": [8, 8], "grid": [7, 7], "layers": []}, "1x1")


@pytest.mark.parametrize(
    "edit",
    [
        lambda meta: meta.pop("images"),
        lambda meta: meta.update(evaluations=None),
        lambda meta: meta.update(results=None),
        lambda meta: meta.update(results=["x", "y"]),
        lambda meta: meta.pop("footprint"),
        lambda meta: meta["footprint"].update(layers=5),
        lambda meta: meta.update(scores={}),
    ],
)
def test_files_that_lack_a_part_are_refused(rows: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    edit_meta(rows, edit)
    with pytest.raises(UsageError, match=r"rows.jsonl .*\. Make it (again )?with bagcert certify"):
        verify_rows(rows)


def test_layers_that_see_less_than_the_file_says_are_found(rows: Path) -> None:
    """With smaller kernels a patch would seem to reach fewer scores, and more would seem to be proven."""

    def smaller(meta: dict[str, Any]) -> None:
        for layer in meta["footprint"]["layers"]:
            layer.update(kernel=[1, 1], padding=[0, 0])

    edit_meta(rows, smaller)
    verdict = verify_rows(rows)
    assert "layers that see 1x1 pixels, file says 5x5" in [problem.words for problem in verdict.problems]
    assert any("each seeing 1x1 pixels by 2 layers" in line for line in words(verdict))


ONE_EACH = [[[pixel, 1]] for pixel in range(8)]


@pytest.mark.parametrize("forged", [{"pixels": {"rows": ONE_EACH, "columns": ONE_EACH}}, {"kept": [1, 1]}])
def test_a_table_that_sees_less_than_the_file_says_is_found(rows: Path, forged: dict[str, Any]) -> None:
    def other(meta: dict[str, Any]) -> None:
        del meta["footprint"]["layers"]
        meta["footprint"].update(forged)

    edit_meta(rows, other)
    (kind,) = forged
    found = [problem.words for problem in verify_rows(rows).problems]
    assert f"{kind} that see 1x1 pixels, file says 5x5" in found


@pytest.mark.parametrize("padding", [0, 5])
def test_what_is_seen_goes_from_the_first_pixel_to_the_last(padding: int) -> None:
    layers = [Layer(3, dilation=2, padding=padding)]  # far outside, outputs see nothing
    honest = Footprint.of_layers(layers, (9, 9))
    footprint = {"image_size": [9, 9], "grid": list(honest.grid), "layers": layer_table(layers)}
    assert field_of(footprint) == list(honest.receptive_field)


LAYER: dict[str, list[int]] = {"kernel": [1, 1], "stride": [1, 1], "dilation": [1, 1], "padding": [0, 0]}
WIDE = {"image_size": [4096, 4096], "grid": [4096, 4096]}


@pytest.mark.parametrize(
    ("patch", "footprint"),
    [
        ("2048x2048", {**WIDE, "layers": []}),
        ("1x1", {"image_size": [256, 256], "grid": [256, 256], "layers": []}),
        ("1x1", {**WIDE, "kept": [4095, 4095]}),
        ("1x1", {**WIDE, "pixels": {"rows": [[[0, 4096]]] * 4096, "columns": [[[0, 1]]] * 4096}}),
        ("1x1", {**WIDE, "layers": [{**LAYER, "kernel": [4096, 4096], "padding": [2048, 2048]}]}),
        ("1x1", {"image_size": [8, 8], "grid": [8, 8], "layers": [{**LAYER, "padding": [4096, 4096]}] * 9999}),
        ("1x1", {**WIDE, "grid": [4096, 1], "maps": [{"kept": [4096, 4095]}] * 4096}),
        ("4096x4096", {**WIDE, "hidden": {"rows": [[0, 4096]] * 4095, "columns": [[0, 1]] * 4096}}),
        ("4096x4096", {**WIDE, "hidden": {"sets": [[[0, 1]]] * 4096}}),
    ],
)
def test_headers_that_ask_for_much_are_refused(patch: str, footprint: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="The patch in the rows has too many placements to be verified"):
        maximal_reach(footprint, patch)


@pytest.mark.parametrize(
    "bounds", [[0, 2**60], [0, 2**62], [-(2**63), 0], [1, 0], [1, 1], [0, 0.5], [0, float("inf")], [float("nan"), 1]]
)
def test_bounds_with_which_sums_are_not_exact_are_refused(bounds: list[Any]) -> None:
    """A width of 2**60 times a region of 16 scores is 0 in 64 bits: the patch would seem to change nothing."""
    scores = np.zeros((3, 8, 8))
    scores[1, :, :4] = 1
    header: dict[str, Any] = {
        "footprint": {"image_size": [8, 8], "grid": [8, 8], "layers": []},
        "scores": {"bounds": [0, 1]},
    }
    assert checker_for(header, "4x4", "every-region", NONE).finding(scores, 1).lead == 0
    with pytest.raises(UsageError, match="The bounds of the scores in the rows must be two whole numbers in -17592186"):
        checker_for({**header, "scores": {"bounds": bounds}}, "4x4", "every-region", NONE)


def test_masked_knows_no_scores_below_zero() -> None:
    """Its proof needs that a mask which holds the patch takes at least what the patch adds."""
    header = {"footprint": {"image_size": [8, 8], "grid": [8, 8], "layers": []}, "scores": {"bounds": [-1, 1]}}
    assert checker_for(header, "4x4", "two-mask", NONE)
    with pytest.raises(UsageError, match="Rule 'masked' in the rows knows no scores below 0, but they start at -1"):
        checker_for(header, "4x4", "masked", NONE)


@pytest.mark.parametrize("patch", ["2x2,9x9", "9x1|2x2", "disk:9,2x2", "2x2,5x1@upper", "area:99,1x1", "2*1x1,9x9"])
def test_a_patch_of_several_that_fits_nowhere_is_refused(patch: str) -> None:
    """Else rows would claim a proof against it, and only the others be tried."""
    with pytest.raises(UsageError, match=r"in the rows fits nowhere into 8x8 pixels"):
        maximal_reach({"image_size": [8, 8], "grid": [8, 8], "layers": []}, patch)
    with pytest.raises(UsageError):
        parse_threat(patch, (8, 8))


@pytest.mark.parametrize("patch", ["0x5", "5x0", "0", "area:0", "disk:0", "2x2,0x1", "0*2x2", "0of2x2"])
def test_a_patch_without_pixels_proves_nothing(patch: str) -> None:
    with pytest.raises(UsageError, match=r"in the rows has no pixels|The rows are about no patch at all"):
        maximal_reach({"image_size": [8, 8], "grid": [8, 8], "layers": []}, patch)


def test_a_disk_larger_than_the_image_is_refused_before_it_is_drawn() -> None:
    with pytest.raises(UsageError, match=r"The patch 'disk:9{18}' in the rows fits nowhere into 8x8 pixels"):
        maximal_reach({"image_size": [8, 8], "grid": [8, 8], "layers": []}, f"disk:{'9' * 18}")


def test_nothing_is_shared_with_rules_and_threats() -> None:
    for path in Path(check.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(("bagcert.rules", "bagcert.threats", "torch")), path
