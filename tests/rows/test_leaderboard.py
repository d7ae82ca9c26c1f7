"""Entries of the leaderboard: honest ones on both levels, invented scores on the first alone, wrong labels on none."""

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.data import Dataset, Source
from bagcert.defense import Defense, load
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.rows import leaderboard
from bagcert.rows.format import meta_path
from bagcert.rows.leaderboard import Ours, check_entry, data_in_words, entry_files
from bagcert.rows.standings import CHECKED, REFUSED, REPRODUCED, Entry, Result, tables
from bagcert.stored_models import card, shipped_models
from studies.rivals.papers import PAPERS
from tests.cli.calling import call
from tests.rows.digit_runs import DIGITS
from tests.rows.forging import edit_lines, edit_meta

PAGE = Path(__file__).parents[2] / "docs" / "leaderboard.md"
IMAGES = 24
LABELS = DIGITS.split("test").labels.numpy()


@pytest.fixture
def honest(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows with scores of a small network, which lies beside them."""
    rows = tmp_path / "entries" / "honest.jsonl"
    rows.parent.mkdir()
    rules = ("--rule", "every-region", "--rule", "two-mask:3")
    assert call(monkeypatch, "certify", str(run), "--scores", "--limit", str(IMAGES), *rules, "--out", str(rows)) == 0
    shutil.copytree(run, rows.with_name("honest.model"))
    return rows


@pytest.fixture
def write_entry() -> Callable[..., None]:
    """What the guide gives to entrants: NumPy alone."""
    script = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[0]
    assert "bagcert" not in "".join(re.findall(r"^(?:import|from) .*$", script, re.MULTILINE))
    names: dict[str, Any] = {}
    exec(compile(script, "entry.py", "exec"), names)
    function: Callable[..., None] = names["write_entry"]
    return function


def enter(
    write_entry: Callable[..., None], folder: Path, votes: Any, labels: Any = LABELS[:IMAGES], field: int = 3
) -> Path:
    data = {"name": "digits", "digest": DIGITS.digest}
    write_entry(folder, "foreign", votes, labels, DIGITS.classes, data, patch=1, field=field, weights="0" * 64)
    return folder / "foreign.jsonl"


def perfect(labels: Any = LABELS[:IMAGES]) -> Any:
    """All positions vote for the true class."""
    return np.eye(10, dtype=np.uint8)[labels][:, :, None, None].repeat(8, axis=2).repeat(8, axis=3)


def numbers(path: Path) -> list[tuple[Any, ...]]:
    results = json.loads(meta_path(path).read_text())["results"]
    return [(each["patch"], each["rule"], each["clean_accuracy"], each["certified_accuracy"]) for each in results]


def told(entry: Entry) -> list[tuple[Any, ...]]:
    return [(each.patch, each.rule, each.clean, each.certified) for each in entry.results]


def test_an_honest_entry_reaches_both_levels(honest: Path) -> None:
    first, second = check_entry(honest), check_entry(honest, reproduce=True)
    assert (first.level, second.level, second.why) == (CHECKED, REPRODUCED, "")
    assert told(first) == told(second) == numbers(honest)
    assert all(each.cost is None for each in first.results)
    assert all(each.cost is not None and each.cost.passes == 1 for each in second.results)
    assert all(each.cost is not None and each.cost.device.startswith("CPU (") for each in second.results)
    shutil.rmtree(honest.with_name("honest.model"))
    without = check_entry(honest, reproduce=True)
    assert without.level == CHECKED and "put the model's folder beside the rows" in without.why


def test_scores_are_computed_again_on_the_device_of_the_rows(honest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this machine has it, and no other one is asked for."""
    asked: list[str] = []

    def recorded(folder: Path, device: str, network: None) -> Defense:
        asked.append(device)
        return load(folder)

    monkeypatch.setattr(leaderboard, "load", recorded)
    gpu = "torch, cuda, float32, eager, channels_last, without cuDNN, batches of 16"
    for there, named, device in ((True, gpu, None), (False, gpu, None), (True, "", None), (True, gpu, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", partial(bool, there))
        edit_meta(honest, partial(dict.update, arithmetic=named))
        assert check_entry(honest, reproduce=True, ours=Ours(device=device)).level == REPRODUCED
    assert asked == ["cuda", "cpu", "cpu", "cpu"]


def test_a_device_that_is_not_there_is_refused_before_anything_is_checked(
    honest: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "leaderboard", "check", str(honest.parent), "--reproduce", "--device", "cuda:99") == 2
    said = capsys.readouterr()
    assert "This machine has no device 'cuda:99'" in said.err and "honest" not in said.out


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_of_a_gpu_come_out_again_on_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "honest.jsonl"
    assert call(monkeypatch, "certify", str(run), "--scores", "--device", "cuda", "--out", str(rows)) == 0
    shutil.copytree(run, rows.with_name("honest.model"))
    entry = check_entry(rows, reproduce=True)
    assert entry.level == REPRODUCED, entry.why
    assert all(each.cost is not None and each.cost.device == torch.cuda.get_device_name() for each in entry.results)


def test_shipped_weights_are_found_wherever_one_stands(
    write_entry: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside a folder that has the name of a shipped model; that model has not ten digits."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar10").mkdir()
    path = enter(write_entry, tmp_path, perfect())
    wanted = card(shipped_models()["cifar10-small"])["weights_sha256"]
    edit_meta(path, lambda meta: meta.update(weights_sha256=wanted))
    assert "The model's classes are not those of digits" in check_entry(path, reproduce=True).why


def test_a_foreign_entry_holds(write_entry: Callable[..., None], tmp_path: Path) -> None:
    votes = (np.random.default_rng(0).random((IMAGES, 10, 8, 8)) < 0.3) | (perfect() > 0)
    votes[::3] = np.random.default_rng(1).random(votes[::3].shape) < 0.5
    entry = check_entry(enter(write_entry, tmp_path, votes.astype(np.uint8)), reproduce=True)
    assert entry.level == CHECKED and "There are no weights" in entry.why
    (result,) = entry.results
    assert 0 < result.certified <= result.clean < 1


def test_invented_scores_stay_on_the_first_level(write_entry: Callable[..., None], honest: Path) -> None:
    """They claim to be of a network that is there, with its bounds and footprint."""
    real = json.loads(meta_path(honest).read_text())
    forged = enter(write_entry, honest.parent, perfect(), field=real["footprint"]["receptive_field"][0])
    claimed = {key: real[key] for key in ("weights_sha256", "scores", "footprint")}
    edit_meta(forged, lambda meta: meta.update(claimed))
    shutil.copytree(honest.with_name("honest.model"), honest.with_name("foreign.model"))
    entry = check_entry(forged, reproduce=True)
    assert entry.level == CHECKED and "come out otherwise" in entry.why, entry
    assert told(entry) == [("1x1", "every-region", 1.0, 1.0)]
    edit_meta(forged, lambda meta: meta.update(weights_sha256="1" * 64))
    assert "not those that the rows name" in check_entry(forged, reproduce=True).why


def test_claimed_bounds_and_footprints_are_compared_with_the_network(
    write_entry: Callable[..., None], honest: Path
) -> None:
    """Votes that see less than those of the network do prove more; only the network says what they see."""
    forged = enter(write_entry, honest.parent, perfect())
    real = json.loads(meta_path(honest).read_text())
    edit_meta(forged, lambda meta: meta.update(weights_sha256=real["weights_sha256"]))
    shutil.copytree(honest.with_name("honest.model"), honest.with_name("foreign.model"))
    assert "Bounds or footprint" in check_entry(forged, reproduce=True).why


def test_labels_are_ours(write_entry: Callable[..., None], tmp_path: Path) -> None:
    wrong = (LABELS[:IMAGES] + 1) % 10
    entry = check_entry(enter(write_entry, tmp_path, perfect(wrong), wrong))
    assert entry.level == REFUSED and "The label of image 0 is not that of our copy of digits" in entry.why
    assert not entry.results


def test_pictures_are_those_of_our_own_folder(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named by whoever checks, never by the entry, and framed as the rows say."""
    source, rows = tmp_path / "digits", tmp_path / "entries" / "pictures.jsonl"
    for number in range(10):
        folder = source / "val" / DIGITS.classes[number]
        folder.mkdir(parents=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (9, 8), np.uint8)).save(folder / "picture.png")
    rows.parent.mkdir()
    assert call(monkeypatch, "certify", str(run), "--data", str(source), "--scores", "--out", str(rows)) == 0
    shutil.copytree(run, rows.with_name("pictures.model"))
    ours, other = (shutil.copytree(source, tmp_path / name) for name in ("ours", "other"))
    shutil.rmtree(other / "val" / DIGITS.classes[9])
    entry = check_entry(rows, reproduce=True, ours=Ours(folders=(other, ours)))
    assert (entry.level, entry.data, entry.images, entry.why) == (REPRODUCED, "ours as 8x8 (crop 8, box)", 10, "")
    assert told(entry) == numbers(rows)
    assert "no data that everybody has" in check_entry(rows).why
    edit_meta(rows, lambda meta: meta["data"]["framing"].update(fit="squash"))
    assert "none of the folders of --data" in check_entry(rows, ours=Ours(folders=(ours,))).why
    edit_meta(rows, lambda meta: meta["data"].pop("framing"))
    entry = check_entry(rows, ours=Ours(folders=(ours,)))
    assert entry.level == REFUSED and "data.framing must be a table" in entry.why


def test_a_network_that_is_not_ours_is_named_by_whoever_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its model alone does not reach the second level: a card makes no machine run code."""
    monkeypatch.chdir(tmp_path)
    Path("classifiers_of_entries.py").write_text(
        "from torch import nn\n\ndef one():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n", "utf-8"
    )
    own = ("--network", "classifiers_of_entries:one")
    made = ("--size", "8", "--channels", "1", "--classes", "10", "--patch", "1x1", "--masks", "2")
    assert call(monkeypatch, "cover", own[1], *made, "--out", "entries/mine.model") == 0
    rows = ("--data", "digits", "--limit", "20", "--scores", "--out", "entries/mine.jsonl")
    assert call(monkeypatch, "certify", "entries/mine.model", *own, "--rule", "unanimous", *rows) == 0
    check = ("leaderboard", "check", "entries", "--reproduce")
    assert call(monkeypatch, *check) == 0
    assert "mine: arithmetic checked; " in capsys.readouterr().out
    assert call(monkeypatch, *check, "--network", "mine=classifiers_of_entries:one") == 0
    said = capsys.readouterr().out
    assert "mine: reproduced\n" in said and "| 10 |" in said  # four masks and their pairs
    for wrong in ("mine", "other=classifiers_of_entries:one"):
        assert call(monkeypatch, *check, "--network", wrong) == 2
        assert "as in mine=my_networks:small" in capsys.readouterr().err


def test_pictures_framed_otherwise_stand_in_another_table() -> None:
    """Else whoever enlarges the pictures would lead: a patch of as many pixels is a smaller part of them."""
    framed = {framing: data_in_words(Photographs(framing)) for framing in FRAMINGS}
    assert framed[FRAMINGS[0]] == "photographs as 8x8 (crop 8, box)"
    assert len(set(framed.values())) == len(FRAMINGS)
    result = Result("1x1", "two-mask", 1.0, 1.0)
    page = tables([Entry("one", CHECKED, data=data, images=1, results=(result,)) for data in framed.values()])
    assert page.count("### ") == len(FRAMINGS)


FRAMINGS = (
    Framing((8, 8), 8, 1),
    Framing((16, 16), 16, 1),
    Framing((8, 8), 9, 1),
    Framing((8, 8), 8, 1, "squash"),
    Framing((8, 8), 8, 1, interpolation="bilinear"),
)


class Photographs(Dataset):
    name = "folders/photographs"

    def __init__(self, framing: Framing) -> None:
        self.framing = framing

    def split(self, name: str) -> Source:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"footprint": {"image_size": [64, 64]}}, "The rows are of images of [64, 64], but those of digits have 8x8."),
        ({"footprint": {}}, "The rows are of images of None, but those of digits have 8x8."),
        ({"data": {"name": "digits", "digest": "0" * 64}}, "not of our copy of digits"),
        ({"data": {"name": "/etc", "digest": "0"}}, "no data that everybody has"),
        ({"data": "digits"}, "The rows name no data"),
        ({"split": "train"}, "not of the test images"),
        ({"classes": list(reversed(DIGITS.classes))}, "not of the test images"),
        ({"scores_stored": False}, "without scores"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    write_entry: Callable[..., None], tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    path = enter(write_entry, tmp_path, perfect())
    edit_meta(path, lambda meta: meta.update(change))
    entry = check_entry(path)
    assert entry.level == REFUSED and why in entry.why


def test_a_proof_that_does_not_follow_is_refused(write_entry: Callable[..., None], tmp_path: Path) -> None:
    path = enter(write_entry, tmp_path, perfect())
    edit_lines(path, lambda line: line.update(lead=line["lead"] + 1), image=3)
    entry = check_entry(path)
    assert entry.level == REFUSED and "Not all of it holds, first: 1x1 every-region: lead" in entry.why


def test_the_command_ranks_levels_apart(
    write_entry: Callable[..., None],
    honest: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    enter(write_entry, honest.parent, perfect())
    page = honest.parent / "page.md"
    assert call(monkeypatch, "leaderboard", "check", str(honest.parent), "--reproduce", "--out", str(page)) == 0
    said = capsys.readouterr().out
    assert "honest: reproduced\n" in said and "foreign: arithmetic checked; There are no weights" in said
    checked = page.read_text(encoding="utf-8").split("### Arithmetic checked")
    assert re.search(r"\| `honest` \|.*\| CPU \(\S+\) \| `[0-9a-f]{12}` \|", checked[0])
    assert "`foreign`" not in checked[0] and all("`honest`" not in part for part in checked[1:])
    meta_path(honest).write_text("{}")
    assert call(monkeypatch, "leaderboard", "check", str(honest.parent)) == 1
    said = capsys.readouterr().out
    assert "honest: refused; " in said and "`foreign`" in said and "`honest`" not in said
    assert call(monkeypatch, "leaderboard", "win", str(honest.parent)) == 2
    assert call(monkeypatch, "leaderboard", "check", str(honest.parent / "honest.model")) == 2


@pytest.mark.parametrize(
    "name", ["mine` | detect | 99.9 | 99.9 | `", "mine: reproduced\nother", "mine\x1b[2K", "a b", "ä"]
)
def test_no_name_says_more_than_a_name(name: str, tmp_path: Path) -> None:
    """A cell of its own, or a line of the terminal, would look like a result."""
    (tmp_path / "fine-1.0_a+b.jsonl").touch()
    assert entry_files(tmp_path) == [tmp_path / "fine-1.0_a+b.jsonl"]
    (tmp_path / f"{name}.jsonl.gz").touch()
    with pytest.raises(UsageError, match=r"An entry's name has letters, digits and \. _ \+ - alone, unlike '") as found:
        entry_files(tmp_path)
    assert str(found.value).isprintable()


@pytest.mark.parametrize(("text", "told_as"), [("1", "1x1"), ("(1,1)", "1x1"), ("0.1%", "1x1"), ("\n1*1x1", "1x1")])
def test_one_patch_has_one_table(write_entry: Callable[..., None], tmp_path: Path, text: str, told_as: str) -> None:
    """However it is written; else whoever writes it otherwise would be compared with nobody."""
    path = enter(write_entry, tmp_path, perfect())
    rename = partial(edit_evaluations, text)
    edit_lines(path, lambda line: line.update(patch=text))
    edit_meta(path, rename)
    entry = check_entry(path)
    assert [each.patch for each in entry.results] == [told_as], entry.why


def edit_evaluations(patch: str, meta: dict[str, Any]) -> None:
    for entry in (*meta["evaluations"], *meta["results"]):
        entry["patch"] = patch


def test_what_is_wrong_is_said_in_one_line(write_entry: Callable[..., None], tmp_path: Path) -> None:
    path = enter(write_entry, tmp_path, perfect())
    edit_meta(path, lambda meta: meta["evaluations"][0].update(rule="x'\nmine: reproduced\x1b[2K"))
    entry = check_entry(path)
    assert entry.level == REFUSED and entry.why.startswith("Rule 'x' mine: reproduced [2K") and entry.why.isprintable()


def test_what_papers_state_is_marked_as_such() -> None:
    stated = PAGE.read_text(encoding="utf-8").split("<!-- stated -->")[1].split("<!-- /stated -->")[0]
    rows = [
        f"| `{name}` | {paper.accuracies['5x5'][0]:.1f} | {paper.accuracies['5x5'][1]:.1f} | {paper.source} |"
        for name, paper in PAPERS.items()
        if "5x5" in paper.accuracies
    ]
    assert stated.strip().splitlines()[2:] == rows
