"""The zoo: docs/models.md, its figure and `bagcert models` say what cards and stored measurements say."""

import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest
import torch

from bagcert.files import read_json
from bagcert.stored_models import card, shipped_models
from bagcert.zoo import (
    COST_HEADS,
    KEYS,
    MEASURED,
    PATCHES,
    PROOF_HEADS,
    Speed,
    by_key,
    cost_cells,
    entry,
    proof_cells,
    zoo,
)
from studies.zoo import command
from studies.zoo.figure import draw_zoo, drawn_numbers
from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run


def test_the_page_and_its_figure_are_up_to_date() -> None:
    """Else: python -m studies zoo page."""
    assert read_json(command.MODELS / MEASURED) == command.measurements()
    entries, text = zoo(), command.PAGE.read_text(encoding="utf-8")
    assert command.filled(text, entries) == text
    assert command.FIGURE.read_text(encoding="utf-8").endswith(drawn_numbers(entries))
    words = [unescape(each) for each in re.findall(r"<text[^>]*>([^<]*)</text>", draw_zoo(entries).svg)]
    assert {*shipped_models(), *PATCHES, "recovery", "detection"} <= set(words)


NOT_ON_A_GPU = ("cifar10", "cifar10-distilled")  # yet: a dash


def test_every_measurement_names_its_device_and_command() -> None:
    for model, found in command.measurements().items():
        assert found["weights_sha256"] == card(model)["weights_sha256"]
        kinds = {"cpu"} if model in NOT_ON_A_GPU else {"cpu", "gpu"}
        assert {"cpu", "gpu"} & found.keys() == kinds, model
        for kind in kinds:
            assert found[kind]["ms_per_image"] > 0 and found[kind]["command"].startswith("python -m "), (model, kind)
            assert ("CPU" in found[kind]["device"]) == (kind == "cpu")


def test_the_zoo_is_what_the_cards_say() -> None:
    entries = zoo()
    assert [each.name for each in entries] == list(shipped_models())
    for each in entries:
        wanted = {row["patch"]: row["certified"] for row in card(each.name)["test"] if row["rule"] == "two-mask"}
        assert {patch: certified for patch, (_, certified) in each.recovery.items()} == wanted
        assert set(PATCHES) <= set(wanted) and len(proof_cells(each)) == len(PROOF_HEADS)
        assert len(cost_cells(each)) == len(COST_HEADS) and cost_cells(each)[-1] == "Apache-2.0"
        for patch, (clean, certified) in each.detection.items():
            assert certified <= clean and certified > wanted[patch], "detection proves more than recovery"


def test_what_is_not_known_is_a_dash_and_comes_last(tmp_path: Path) -> None:
    run = save_digit_run(tmp_path / "run")
    bare = entry("run", run, {"weights_sha256": "of other weights", "gpu": {"ms_per_image": 1.0}})
    assert proof_cells(bare) == ("run", "–", *["– / –"] * 4)
    assert cost_cells(bare) == ("run", "1x8x8", "0.0 M", "0.0", *["–"] * 3, "digits", "–")
    slow, fast = (replace(bare, name=name, cpu=Speed(ms, "CPU", "x")) for name, ms in (("slow", 9.0), ("fast", 1.0)))
    assert [each.name for each in by_key([bare, slow, fast], "cpu")] == ["fast", "slow", "run"]
    for key in KEYS:
        assert len(by_key([bare, slow, fast], key)) == 3


def test_the_command_sorts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def order(*words: str) -> list[str]:
        assert call(monkeypatch, "models", *words) == 0
        lines = capsys.readouterr().out.partition("└")[0].splitlines()
        return [line.split()[1] for line in lines if line.startswith("│ ")]

    assert order() == sorted(shipped_models())
    ranks = {each.name: each.recovery[each.patch][1] for each in zoo()}
    assert order("--sort", "certified") == sorted(ranks, key=lambda name: -ranks[name])
    assert call(monkeypatch, "models", "--sort", "speed") == 2
    assert "Unknown order 'speed'." in capsys.readouterr().err
    assert call(monkeypatch, "models") == 0
    told = capsys.readouterr().out
    assert "by recovery (two-mask: the class is proven)" in told
    for device in {each.gpu.device for each in zoo() if each.gpu is not None}:
        assert f"GPU: {device}, by python -m " in told


def test_a_measurement_times_network_and_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = save_digit_run(tmp_path / "run", "logits", "two-mask")
    monkeypatch.setattr(command, "shipped_models", lambda: {str(run): run})
    monkeypatch.setattr(command, "PATCH", "2x2")
    monkeypatch.setattr(command, "usual_device", lambda: torch.device("cpu"))
    command.measure(1, tmp_path)
    stored = read_json(tmp_path / "cpu.json")
    assert stored["command"] == "python -m studies zoo measure --repeats 1" and stored["programs"].keys() == {
        "exact",
        "fast",
    }
    assert all(ms > 0 for ms in stored["models"][str(run)]["ms_per_image"].values())
