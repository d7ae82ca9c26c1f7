from pathlib import Path

import pytest
from rich.progress import Progress

from bagcert.cli import demo
from bagcert.errors import UsageError
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.training import Recipe, load_recipe
from bagcert.training.sync import Stopped
from tests.cli.calling import call
from tests.rows.digit_runs import save_digit_run

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def few_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "CERTIFIED", 40)
    monkeypatch.setattr(demo, "ATTACKED", 4)


def reachable(data_dir: Path | None, progress: Progress) -> None:
    progress.add_task("nothing to fetch")


def out_of_reach(data_dir: Path | None, progress: Progress) -> None:
    raise UsageError("Cannot fetch CIFAR-10.")


def test_the_shipped_model_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(demo, "fetch_cifar10", reachable)
    monkeypatch.setattr(demo, "SHIPPED", demo.Scene(str(save_digit_run(Path("run"))), ("2x2",)))
    assert call(monkeypatch, "demo") == 0
    out = capsys.readouterr().out
    for step in ("1/4 data", "2/4 certify 40 images", "3/4 attack 4 images", "4/4 report"):
        assert step in out
    assert str(Path("demo/report/report.html").resolve()) in out
    page = Path("demo/report/report.html").read_text()
    assert "Between proof and attack" in page and '<div class="gallery">' in page
    rows = Path("demo/rows.jsonl").read_text()
    assert call(monkeypatch, "demo") == 0
    assert Path("demo/rows.jsonl").read_text() == rows, "a second call has nothing left to do"
    assert call(monkeypatch, "verify", "demo/rows.jsonl") == 0


def test_stopped_while_digits_are_trained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(*_: object) -> None:
        raise Stopped

    monkeypatch.setattr(demo, "fetch_cifar10", out_of_reach)
    monkeypatch.setattr(demo, "train_recipe", stop)
    assert call(monkeypatch, "demo", "--out", "elsewhere") == 130
    assert "stopped; to continue: bagcert demo --out elsewhere" in capsys.readouterr().out


def test_without_a_source_digits_are_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def short(name: str, settings: tuple[str, ...]) -> Recipe:
        return load_recipe(name, ["schedule.epochs=2", "schedule.warmup_epochs=1", "evaluation.times=1"])

    monkeypatch.setattr(demo, "fetch_cifar10", out_of_reach)
    monkeypatch.setattr(demo, "load_recipe", short)
    assert call(monkeypatch, "demo", "--out", "elsewhere") == 0
    out = capsys.readouterr().out
    assert "no CIFAR-10 (Cannot fetch CIFAR-10.); using 8x8 digits" in out
    rows = read_rows(Path("elsewhere/rows.jsonl"))
    assert [entry.patch for entry in rows.results] == ["1x1", "1x2", "2x1", "2x2"]
    assert len(read_attack_rows(Path("elsewhere/attack.jsonl")).labels) == 4
    assert Path("elsewhere/report/report.html").exists()
    assert call(monkeypatch, "demo", "--out", "elsewhere") == 0, "the trained network is found again"
