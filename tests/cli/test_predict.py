"""`bagcert predict`: files, folders, patterns and standard input; a broken file costs only itself."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bagcert.cli.predict import expand, in_a_word, largest, predictions
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.pictures import Framing
from bagcert.rows.thresholds import Threshold, store_threshold
from tests.cli.calling import call
from tests.pictures.test_everywhere import save_small_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_small_run(tmp_path_factory.mktemp("run"), Framing((12, 12), 12)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    random = np.random.default_rng(2)
    (tmp_path / "more").mkdir()
    for name, shape, light in (("a.png", (36, 50, 3), 230), ("b.jpg", (12, 12, 3), 5), ("more/c.PNG", (5, 5, 3), 120)):
        levels = random.integers(max(0, light - 20), light + 20, shape, dtype=np.uint8)
        Image.fromarray(levels).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no picture")
    return tmp_path


def test_folders_files_and_patterns_are_expanded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert expand(["."]) == ["a.png", "b.jpg", "more/c.PNG"]
    assert expand(["b.jpg", "*.png", "-", "**/*.PNG", "b.jpg", "gone.png"]) == [
        *("b.jpg", "a.png", "-", "more/c.PNG", "gone.png")
    ]
    with pytest.raises(UsageError, match=r"No file matches '\*\.tif'\."):
        expand(["*.tif"])
    (folder / "[odd].png").write_bytes(b"")  # a file may look like a pattern
    assert expand(["[odd].png"]) == ["[odd].png"]
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty holds no pictures"):
        expand(["empty"])


def test_the_table_says_what_is_proven(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "predict", run, str(folder / "a.png"), str(folder / "b.jpg")) == 0
    told = capsys.readouterr().out
    assert "largest proven patch" in told and "4x4" in told and "rule two-mask" in told
    assert "in each picture's own pixels" in told


def test_unreadable_files_cost_only_themselves(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.png").write_bytes((folder / "a.png").read_bytes()[:200])
    names = [str(folder / name) for name in ("a.png", "broken.png", "gone.png", "b.jpg")]
    assert call(monkeypatch, "predict", run, *names, "--json") == 2
    printed = capsys.readouterr()
    answers = json.loads(printed.out)["answers"]
    assert [answer["picture"] for answer in answers] == names
    assert ["error" in answer for answer in answers] == [False, True, True, False]
    assert answers[2]["error"].endswith("gone.png does not exist.")
    assert printed.err.strip().endswith("Pictures without an answer: 2 of 4. Leave them out, or repair them.")
    assert call(monkeypatch, "predict", run, *names) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 3 and "Cannot read the image" in printed.err and "gone.png" not in printed.out


def test_values_and_objects_say_the_same(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(option: str) -> str:
        assert call(monkeypatch, "predict", run, str(folder), option, "--patch", "1x1") == 0
        return capsys.readouterr().out

    answers: list[dict[str, Any]] = json.loads(printed("--json"))["answers"]
    rows = list(csv.DictReader(io.StringIO(printed("--csv"))))
    assert len(rows) == len(answers) == 3
    for row, answer in zip(rows, answers, strict=True):
        assert row["picture"] == answer["picture"] and row["name"] == answer["name"] and row["error"] == ""
        assert row["patch"] == (answer["original"]["patch"] or "") and row["threat"] == "1x1" == answer["threat"]
        place = answer["original"]["weakest"]
        assert row["weakest"] == f"{place['height']}x{place['width']} at {place['row']},{place['column']}"
    assert call(monkeypatch, "predict", run, str(folder), "--json", "--csv") == 2
    assert "Choose --json or --csv, not both." in capsys.readouterr().err


def test_alerts_are_told_in_a_word(run: str, folder: Path) -> None:
    answer = load(run)(folder / "a.png")
    assert answer.proven and in_a_word(answer) == "[green]yes[/green]"
    for alert, detectable, word in ((None, None, "no"), (False, True, "detectable"), (True, False, "[red]alert[/red]")):
        assert in_a_word(replace(answer, certified=False, alert=alert, detectable=detectable)) == word
    tiny = load(run)(folder / "more" / "c.PNG")  # not even one of its pixels fits into the threat
    assert in_a_word(replace(tiny, certified=True, alert=False, detectable=True)) == "no"


def test_the_largest_patch_is_told_as_it_is_written(run: str, folder: Path) -> None:
    for patch, told in (("2x2@lower", "2x2@lower"), ("2*2x2", "2*2x2"), ("2x2", "2x2")):
        answer = load(run).against(patch)(folder / "b.jpg")
        assert largest(replace(answer, certified=True, square=2 if patch == "2x2" else 0)) == told
        alerted = replace(answer, certified=False, square=0, alert=False, detectable=True)
        assert largest(alerted) == f"{told} or an alert"
        assert largest(replace(alerted, detectable=False)) == "none"
    framed = replace(load(run).against("2*2x2")(folder / "a.png"), certified=True)
    assert largest(framed) == "2*4x4"


def test_a_threat_that_cannot_be_carried_over_gives_its_reason(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [str(folder / "a.png"), str(folder / "b.jpg")]
    assert call(monkeypatch, "predict", run, *names, "--patch", "2x2@lower") == 0
    reason = "The threat 2x2@lower is proven only for pictures of the network's own size, 12x12."
    assert capsys.readouterr().out.count(reason) == 1
    assert call(monkeypatch, "predict", run, names[1], "--patch", "2x2@lower") == 0
    assert "proven only" not in capsys.readouterr().out
    assert call(monkeypatch, "predict", run, str(folder / "more" / "c.PNG")) == 0
    assert "A picture of 5x5 becomes 12x12: even one of its pixels outgrows" in capsys.readouterr().out


def test_without_any_answer_there_is_no_table(
    run: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Piped:
        buffer = io.BytesIO(b"a.png\nb.jpg\n")

    monkeypatch.setattr("sys.stdin", Piped)
    assert call(monkeypatch, "predict", run, "nowhere.png", "-") == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "nowhere.png does not exist." in printed.err
    assert "Give - the bytes of one picture, not names of files." in printed.err and "BytesIO" not in printed.err


def test_standard_input_is_a_picture(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Piped:
        buffer = io.BytesIO((folder / "a.png").read_bytes())

    monkeypatch.setattr("sys.stdin", Piped)
    out = folder / "drawn.png"
    assert call(monkeypatch, "predict", run, "-", "--json", "--picture", str(out)) == 0
    (piped,) = json.loads(capsys.readouterr().out)["answers"]
    assert call(monkeypatch, "predict", run, str(folder / "a.png"), "--json") == 0
    (named,) = json.loads(capsys.readouterr().out)["answers"]
    assert {**piped, "picture": None} == {**named, "picture": None}
    with Image.open(out) as drawn:
        assert drawn.size[0] > 800


@pytest.mark.parametrize("endings", [("a.png", "a.png"), ("a.png", "b.jpg"), ("b.jpg", "b.jpg")])
def test_more_than_one_picture_on_standard_input_is_refused(
    run: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    endings: tuple[str, ...],
) -> None:
    class Piped:
        buffer = io.BytesIO(b"".join((folder / name).read_bytes() for name in endings))

    monkeypatch.setattr("sys.stdin", Piped)
    assert call(monkeypatch, "predict", run, "-") == 2
    assert "Standard input holds more than one picture. Give - the bytes of one picture" in capsys.readouterr().err
    assert call(monkeypatch, "predict", run, "-", str(folder / "a.png"), "-") == 2
    told = "bagcert: Standard input is read once, but - is given 2 times. Give it once.\n"
    assert capsys.readouterr().err == told


def test_a_camera_file_with_further_frames_is_one_picture(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = [Image.new("RGB", (30, 20), color) for color in ("navy", "red")]
    frames[0].save(folder / "camera.jpg", "MPO", save_all=True, append_images=frames[1:])

    class Piped:
        buffer = io.BytesIO((folder / "camera.jpg").read_bytes())

    monkeypatch.setattr("sys.stdin", Piped)
    assert call(monkeypatch, "predict", run, "-") == 0


def test_alerts_at_a_rate_of_false_ones(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store_threshold(Path(run), Threshold("2x2", "two-mask", "1%", 7, "validation", 100))
    assert call(monkeypatch, "predict", run, str(folder), "--false-alerts", "1%", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rule"] == "two-mask:7" and all(answer["alert"] is not None for answer in told["answers"])


def test_many_pictures_show_progress_and_keep_no_score_maps(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    defense = replace(load(run), batch_size=2)
    lines = list(predictions(defense, expand([str(folder)]), None))
    assert [line.answer.scores.nbytes for line in lines if line.answer is not None] == [0, 0, 0]
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert call(monkeypatch, "predict", run, str(folder), "--json") == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)["answers"]) == 3
    assert "predicting" in printed.err and "3/3" in printed.err


def test_several_pictures_are_drawn_into_a_folder(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "predict", run, str(folder), "--picture", str(folder / "out")) == 0
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["000-a.png", "001-b.png", "002-c.png"]
    assert call(monkeypatch, "predict", run, str(folder), "--picture", str(folder / "out.png")) == 2
    assert "must end in .png for one picture, or be a folder" in capsys.readouterr().err


def test_a_drawing_that_cannot_be_written_costs_no_answer(
    run: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = str(folder / "a.png")
    assert call(monkeypatch, "predict", run, name, "--json") == 0
    wanted = json.loads(capsys.readouterr().out)
    assert call(monkeypatch, "predict", run, name, "--picture", str(folder / "new" / "deep" / "a.png")) == 0
    assert (folder / "new" / "deep" / "a.png").exists()
    capsys.readouterr()
    for out in ("notes.txt/a.png", "notes.txt/drawn"):
        assert call(monkeypatch, "predict", run, name, "--json", "--picture", str(folder / out)) == 2
        printed = capsys.readouterr()
        assert json.loads(printed.out) == wanted
        assert "Cannot write" in printed.err and "Pictures without a drawing: 1 of 1." in printed.err
