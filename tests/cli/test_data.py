from pathlib import Path

import pytest
from PIL import Image

from bagcert.cli.main import main
from tests.data.tiny_cifar10 import TinyCifar10


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of `bagcert data ...`."""
    monkeypatch.setattr("sys.argv", ["bagcert", "data", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def test_cifar10_is_fetched_and_summed_up(
    tiny_cifar10: TinyCifar10, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(tiny_cifar10.tarball())
    assert run(monkeypatch, "cifar10", "--data-dir", str(tmp_path)) == 0
    first, second = capsys.readouterr().out.strip().splitlines()
    assert first.startswith("cifar10: 10 classes, 3x32x32, SHA-256 ")
    assert second == "train 90, validation 10, train+validation 100, test 20"
    assert tiny_cifar10.is_in(tmp_path / "cifar-10-batches-bin")


@pytest.mark.usefixtures("tiny_cifar10")
def test_without_a_source_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "cifar10", "--data-dir", str(tmp_path)) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("bagcert: Cannot fetch CIFAR-10: ")
    assert lines[0].endswith("run `bagcert data cifar10` again.")


def test_a_misspelt_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(monkeypatch, "digit") == 2
    assert capsys.readouterr().err.startswith("bagcert: Unknown data set or folder 'digit'. Did you mean 'digits'?")


def test_a_folder_is_read_and_its_broken_images_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "good.png")
    options = (str(tmp_path), "--resize", "0", "--crop", "8")
    assert run(monkeypatch, *options) == 0
    sizes = "train none, validation none, train+validation none, test 2"
    assert capsys.readouterr().out.strip().splitlines()[1] == sizes
    (tmp_path / "dog" / "bad.png").write_bytes(b"no image")
    assert run(monkeypatch, *options) == 2
    told = capsys.readouterr()
    assert "dog/bad.png: cannot identify image file" in told.out.splitlines()[2]
    assert told.err.strip() == "bagcert: Unreadable images: 1. Remove them, or train with --skip-broken."
