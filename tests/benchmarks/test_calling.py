import pytest

from bagcert.errors import UsageError
from benchmarks.calling import call


def test_a_mistake_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(images: int = 3) -> None:
        raise UsageError(f"expected more images, got {images}; give more")

    monkeypatch.setattr("sys.argv", ["measure", "--images", "2"])
    with pytest.raises(SystemExit) as ended:
        call(measure)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "benchmarks: expected more images, got 2; give more\n"
