"""Exponents come out of curves, what grows faster than stated is noticed, and the command goes on where it stopped."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bagcert.files import read_json
from benchmarks.growth import command
from benchmarks.growth.fitting import CACHES, fitted, upper_half
from benchmarks.growth.maps import trained_looking_maps
from benchmarks.growth.memory import peak_bytes
from benchmarks.growth.stated import AXES, STATED, Counts
from benchmarks.growth.subjects import Size, Subjects, counts
from tests.studies.calling import call

SIZES = [1, 2, 4, 8, 16, 32, 64]
SMALL = Size(4, 3, 12, 2)


@given(exponent=st.floats(-3, 5), scale=st.floats(1e-6, 1e6))
def test_a_power_law_is_found_exactly(exponent: float, scale: float) -> None:
    fit = fitted(SIZES, [[scale * size**exponent] * 3 for size in SIZES])
    assert fit is not None and (fit.smallest, fit.largest) == (8, 64)
    assert fit.exponent == pytest.approx(exponent, abs=1e-6) and fit.uncertainty < 1e-6


@given(st.lists(st.lists(st.floats(0.9, 1.1), min_size=4, max_size=4), min_size=len(SIZES), max_size=len(SIZES)))
def test_noise_moves_an_exponent_by_little_and_calls_nothing_above(noise: list[list[float]]) -> None:
    fit = fitted(SIZES, [[size**2 * each for each in row] for size, row in zip(SIZES, noise, strict=True)])
    assert fit is not None and abs(fit.exponent - 2) < 0.15
    assert not fit.exceeds(2) and fit.exceeds(1)


def test_a_fixed_cost_does_not_hide_a_quadratic() -> None:
    fit = fitted(SIZES, [[30 + size**2] for size in SIZES])
    assert fit is not None and 1.4 < fit.exponent < 2 and fit.exceeds(1)


def test_caches_and_doubt_are_allowed_for_and_no_more() -> None:
    over = 8.0  # the range of the fit
    slower = [[size * (CACHES * 0.99) ** (max(0, step - 3) / 3)] for step, size in enumerate(SIZES)]
    faster = [[size * (CACHES * 1.2) ** (max(0, step - 3) / 3)] for step, size in enumerate(SIZES)]
    assert SIZES[-1] / SIZES[3] == over
    first, second = fitted(SIZES, slower), fitted(SIZES, faster)
    assert first is not None and second is not None and not first.exceeds(1) and second.exceeds(1)
    assert not replace(second, uncertainty=0.1).exceeds(1)


def test_the_upper_half_has_three_points_if_there_are() -> None:
    halves = [SIZES[:count][upper_half(SIZES[:count])] for count in (7, 6, 4, 3)]
    assert halves == [[8, 16, 32, 64], [8, 16, 32], [2, 4, 8], [1, 2, 4]]
    assert fitted([1, 2], [[1.0], [2.0]]) is None


def test_memory_is_what_is_held_at_once() -> None:
    values = torch.ones(1000, 1000)

    def work() -> None:
        for _ in range(3):  # freed each time
            (values + 1).sum()

    assert 4_000_000 <= peak_bytes(work, torch.device("cpu")) < 4_100_000


def test_maps_look_trained_and_more_of_them_begin_the_same() -> None:
    maps = trained_looking_maps(8, 12, 32, torch.device("cpu"))
    shares = maps.float().mean(dim=(2, 3))
    assert set(maps.unique().tolist()) == {0, 1} and bool((shares[:, 10:] < 0.1).all())  # type: ignore[no-untyped-call]
    assert bool((shares[:, 0] > 0.25).all()) and int((shares.argmax(dim=1) == 0).sum()) >= 7
    assert torch.equal(trained_looking_maps(3, 12, 32, torch.device("cpu")), maps[:3])


def test_formulas_name_what_is_there() -> None:
    at = counts(Size(2, 3, 32, 5))
    assert at == Counts(b=2, k=3, p=1024, n=22**2, a=11**2, q=28**2, v=42)
    for stated in STATED.values():
        assert set(stated.axes) <= set(AXES) and all(stated.of(what)[1](at) > 0 for what in ("time", "memory"))


def test_a_larger_grid_keeps_the_share_of_the_patch() -> None:
    assert Size(1, 10, 32, 5).at("grid", 224) == Size(1, 10, 224, 35)
    assert Size(1, 10, 32, 5).at("patch", 16) == Size(1, 10, 32, 16)


def test_more_images_are_copies_of_the_same() -> None:
    votes = Subjects(torch.device("cpu"), 1).votes(Size(130, 2, 8, 1))
    assert len(votes) == 130 and torch.equal(votes[64:128], votes[:64]) and torch.equal(votes[128:], votes[:2])


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(command.BASE, "cpu", SMALL)
    monkeypatch.setitem(command.ELSEWHERE, "cpu", {})
    small = {"images": (1, 2, 4), "classes": (3, 4, 5), "grid": (12, 14, 16), "patch": (1, 2, 3)}
    monkeypatch.setitem(command.RANGES, "cpu", small)
    monkeypatch.setattr(command, "SHORT", 0.0)
    # Calls this short measure Python, not growth.
    monkeypatch.setattr("benchmarks.growth.fitting.SURE", 1e9)


def test_the_command_measures_every_part_and_goes_on(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "growth.json"
    words = ("--device", "cpu", "--repeats", "1", "--width", "2", "--out", str(out))
    assert call(monkeypatch, command.growth, *words, "--part", "detect") == 0
    first = read_json(out)["curves"]
    assert call(monkeypatch, command.growth, *words) == 0
    found = read_json(out)
    assert found["curves"]["detect"] == first["detect"] and found["threads"] == 1
    assert found["command"].startswith("python -m benchmarks.growth --device cpu --repeats 1")
    assert {name: tuple(by_axis) for name, by_axis in found["curves"].items()} == {
        name: stated.axes for name, stated in STATED.items()
    }
    for by_axis in found["curves"].values():
        for curve in by_axis.values():
            assert len(curve["sizes"]) == 3 and "seconds" not in curve and curve["of_first"][0] == 1
            assert all(each > 0 for each in curve["peak_bytes"])


def test_a_planted_quadratic_is_exit_code_1(
    tiny: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(subjects: Subjects, name: str, axis: str, repeats: int, longest: float) -> command.Curve:
        power = 2 if axis == "images" else 0
        sizes = [10, 100, 1000]
        return {"sizes": sizes, "seconds": [[1e-3 * size**power] for size in sizes], "bytes": [8] * 3}

    monkeypatch.setattr(command, "measured", planted)
    out = str(tmp_path / "growth.json")
    monkeypatch.setattr("benchmarks.growth.fitting.SURE", 2.0)
    monkeypatch.setattr(command, "counts", lambda size: Counts(size.images, size.classes, 1, 1, 1, 1, 1))
    assert call(monkeypatch, command.growth, "--device", "cpu", "--part", "detect", "--out", out) == 1
    assert capsys.readouterr().err == ("grows faster than stated: time of detect by images: 2.0 ± 0.0, stated 1\n")
    assert read_json(Path(out))["curves"]["detect"]["images"]["fits"]["time"]["exceeds"] is True
