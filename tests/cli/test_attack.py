"""`bagcert attack` from end to end, on a small network of random weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import bagcert
from bagcert.attacks import Attacked
from bagcert.cli.main import main
from bagcert.data import load_dataset
from bagcert.defense import Defense
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.format import meta_path
from bagcert.rules import Certificate, EveryRegion, IntegerScores
from bagcert.threats import Regions
from tests.rows.digit_runs import save_digit_run
from tests.rows.forging import lines_of

SHORT = ("--steps", "5", "--step-size", "0.25", "--limit", "35", "--device", "cpu")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    return str(save_digit_run(tmp_path / "run"))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `bagcert attack ...`."""
    monkeypatch.setattr("sys.argv", ["bagcert", "attack", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_accuracies_as_json_and_rows_behind_them(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, model, "--patch", "3x3", *SHORT, "--json", "--out", "rows.jsonl") == 0
    result = json.loads(capsys.readouterr().out)
    rows = read_attack_rows(Path("rows.jsonl"))
    defense = bagcert.load(model).against("3x3")
    batch = next(load_dataset("digits").split("test").batches(35, "cpu"))
    certificate = defense.certify(batch.images)
    assert torch.equal(rows.labels, batch.labels) and torch.equal(rows.predicted, certificate.predicted)
    assert torch.equal(rows.certified, certificate.certified)
    right = certificate.predicted == batch.labels
    seconds, device = result.pop("seconds"), result.pop("device")
    assert seconds > 0 and device.startswith("CPU")
    assert result == {
        "model": model,
        "data": "digits",
        "patch": "3x3",
        "rule": "every-region",
        "images": 35,
        "clean_accuracy": float(right.double().mean()),
        "certified_accuracy": float((right & certificate.certified).double().mean()),
        "attacked_accuracy": float((rows.attacked == rows.labels).double().mean()),
        "flips_of_certified": 0,
        "steps": 5,
        "restarts": 1,
    }
    assert result["certified_accuracy"] <= result["attacked_accuracy"] < result["clean_accuracy"]
    assert rows.header["kind"] == "attack" and rows.header["attack"]["step_size"] == 0.25
    for line in lines_of(Path("rows.jsonl")):
        placement = line["placement"]
        assert (placement is None) == (line["attacked"] == line["predicted"])
        assert placement is None or placement[2:] == [3, 3]


def test_the_same_command_finds_its_rows_and_shows_a_table(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--rule", "two-mask", "--places", "2", "--restarts", "2", "--paper-place", "--fixed-target")
    assert run(monkeypatch, model, *SHORT, *options) == 0
    first = capsys.readouterr().out
    assert "attacked %" in first and "two-mask" in first and "35 images of digits" in first
    (path,) = Path("rows").glob("run-attack-test-*.jsonl")

    def fail(*_: object) -> Attacked:
        raise AssertionError("all rows are there")

    monkeypatch.setattr(Defense, "attack", fail)
    assert run(monkeypatch, model, *SHORT, *options) == 0
    assert capsys.readouterr().out.splitlines()[:5] == first.splitlines()[:5]
    assert set(Path("rows").iterdir()) == {path, meta_path(path)}


def test_ctrl_c_keeps_the_rows_and_the_same_command_goes_on(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (model, *SHORT, "--restarts", "2", "--patch", "2x2", "--out", "parts.jsonl")
    plain, calls = Defense.attack, []

    def interrupted(self: Defense, *rest: Any) -> Attacked:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return plain(self, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Defense, "attack", interrupted)
        assert run(patch, *command) == 130
    assert "to continue: bagcert attack" in capsys.readouterr().err.replace("\n", "")
    with Path("parts.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"patch":"2x2","ru')  # as a crash would leave it
    assert run(monkeypatch, *command) == 0
    assert run(monkeypatch, *command[:-1], "whole.jsonl") == 0
    for path in (Path("parts.jsonl"), meta_path(Path("parts.jsonl"))):
        assert path.read_bytes() == Path(path.name.replace("parts", "whole")).read_bytes()


def test_a_broken_proof_is_red_saved_and_fails(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = EveryRegion._certify

    def broken(self: EveryRegion, scores: IntegerScores, regions: Regions, exact: bool) -> Certificate:
        found = true(self, scores, regions, exact)
        return replace(found, certified=torch.ones_like(found.certified))

    monkeypatch.setattr(EveryRegion, "_certify", broken)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(monkeypatch, model, "--patch", "3x3", *SHORT, "--json", "--out", "out/rows.jsonl") == 1
    said = capsys.readouterr()
    flips = read_attack_rows(Path("out/rows.jsonl")).flips_of_certified.tolist()
    assert json.loads(said.out)["flips_of_certified"] == len(flips) > 0
    assert said.err.count("the proof is broken") == len(flips) and "\x1b[1;31m" in said.err
    defense = bagcert.load(model).against("3x3")
    rows = read_attack_rows(Path("out/rows.jsonl"))
    for image in flips:
        pixels = torch.from_numpy(np.load(f"out/rows-unsound-{image}.npy"))
        assert int(defense.predict(pixels[None])) == int(rows.attacked[image]) != int(rows.predicted[image])
        with Image.open(f"out/rows-unsound-{image}.png") as picture:
            assert np.array_equal(np.asarray(picture), (pixels[0] * 255).round().byte().numpy())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--patch", "9x9"), "The patch 9x9 does not fit into an image of 8x8"),
        (("--rule", "two-masks"), "Did you mean 'two-mask'?"),
        (("--step-size", "3"), "The step size must be above 0 and at most 1, but is 3"),
        (("--out", "rows.csv"), "The name of --out must end in .jsonl, but is rows.csv."),
        (("--data", "digist"), "Did you mean 'digits'?"),
        (("--device", "tpu"), "Unknown device 'tpu'."),
    ],
)
def test_mistakes_are_one_line(
    arguments: tuple[str, ...],
    words: str,
    model: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(monkeypatch, model, *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("bagcert: ") and words in lines[0]


def test_rows_of_another_attack_are_not_touched(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, model, *SHORT, "--out", "rows.jsonl") == 0
    before = Path("rows.jsonl").read_bytes()
    assert run(monkeypatch, model, *SHORT, "--seed", "1", "--out", "rows.jsonl") == 2
    assert "rows.jsonl holds rows that differ in attack. Choose another --out." in capsys.readouterr().err
    assert Path("rows.jsonl").read_bytes() == before
