from pathlib import Path

import pytest

from studies.figures.command import figures
from tests.studies.calling import call

pytestmark = pytest.mark.slow


def test_figures_are_made_and_missing_rows_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(monkeypatch, figures, "--only", "training-1d", "--only", "attacked") == 0
    assert capsys.readouterr().out.splitlines() == [
        "training-1d: figures/training-1d.svg",
        "attacked: not drawn",
        "  without 20 of 20 attacked sweep models; to make them: python -m studies sweep --runs 'rf*'",
    ]
    assert sorted(path.name for path in Path("figures").iterdir()) == ["training-1d.png", "training-1d.svg"]
    assert call(monkeypatch, figures, "--only", "atacked") == 2
    assert "Unknown figure 'atacked'. Did you mean 'attacked'?" in capsys.readouterr().err
