"""`python -m studies` and `python -m benchmarks`: every command is listed, and mistakes are one line."""

from pathlib import Path

import pytest

from bagcert.errors import UsageError
from studies.common.commands import choose, dispatch, listed
from tests.studies.calling import call

ROOT = Path(__file__).parents[2]
STUDIES = {
    "distilled",
    "figures",
    "frontier",
    "labels",
    "photographs",
    "reproduction",
    "rivals",
    "shipped",
    "sweep",
    "taught",
}
BENCHMARKS = {"audits", "certificates", "export", "feeding", "footprints", "imagenet", "serving", "soundness", "table1"}


def test_a_mistake_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(images: int = 3) -> None:
        raise UsageError(f"expected more images, got {images}; give more")

    assert call(monkeypatch, measure, "--images", "2") == 2
    assert capsys.readouterr().err == "error: expected more images, got 2; give more\n"


@pytest.mark.parametrize(("package", "names"), [("studies", STUDIES), ("benchmarks", BENCHMARKS)])
def test_every_command_is_listed_with_one_line(
    package: str, names: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [package])
    dispatch(ROOT / package)
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith(f"Usage: python -m {package} NAME")
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert names <= shown.keys() and all(words.endswith(".") and len(words) < 110 for words in shown.values())


@pytest.mark.filterwarnings("ignore:.*found in sys.modules")  # another test has imported it
@pytest.mark.parametrize("package", ["studies", "benchmarks"])
def test_every_command_has_help(
    package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in listed(ROOT / package):
        monkeypatch.setattr("sys.argv", [package, name, "--help"])
        with pytest.raises(SystemExit) as ended:
            dispatch(ROOT / package)
        assert not ended.value.code and "Usage:" in capsys.readouterr().out, name


def test_an_unknown_name_is_told_with_the_nearest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["studies", "rival", "compare"])
    with pytest.raises(SystemExit) as ended:
        dispatch(ROOT / "studies")
    assert ended.value.code == 2 and "Did you mean 'rivals'?" in capsys.readouterr().err


def test_studies_do_not_import_benchmarks() -> None:
    """Benchmarks use what studies share; the other way they would need each other."""
    for path in (ROOT / "studies").rglob("*.py"):
        assert "from benchmarks" not in path.read_text(encoding="utf-8"), path


def test_only_known_names_are_chosen() -> None:
    assert choose("run", None, ("one", "two")) == choose("run", [], ["one", "two"]) == ["one", "two"]
    assert choose("run", ["two"], {"one": 1, "two": 2}) == ["two"]
    with pytest.raises(UsageError, match=r"Unknown run 'tow'\. Did you mean 'two'\?"):
        choose("run", ["one", "tow"], ["one", "two"])
