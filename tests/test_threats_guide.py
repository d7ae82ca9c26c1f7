"""Every line of the threat cookbook runs."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bagcert.data.cifar10 import CLASSES
from bagcert.threats import parse_threat
from tests.cli.calling import call

GUIDE = (Path(__file__).parents[1] / "docs" / "threats.md").read_text(encoding="utf-8")
LINES = re.findall(r"^    (bagcert .+)$", GUIDE, re.MULTILINE)
QUICK = {
    "certify": ("--data", "pictures", "--limit", "1"),
    "attack": ("--data", "pictures", "--limit", "1", "--steps", "1"),
}


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A picture for each class in place of CIFAR-10, and the masks of the guide."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(CLASSES):
        folder = tmp_path / "pictures" / "val" / name
        folder.mkdir(parents=True)
        (tmp_path / "pictures" / "train" / name).mkdir(parents=True)
        levels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        for split in ("train", "val"):
            Image.fromarray(levels).save(tmp_path / "pictures" / split / name / "0.png")
    Image.new("RGB", (40, 50), "gray").save("picture.png")
    code = next(block for block in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.M | re.S) if "np.save" in block)
    exec(compile(code, "threats.md", "exec"), {})


def test_every_threat_is_quoted_for_the_shell() -> None:
    for line in LINES:
        assert not re.search(r"--(patch|masks|out) [^']", line), line
    shown = set(re.findall(r"--patch '([^']+)'", GUIDE))
    written = {word.replace("\\|", "|") for word in re.findall(r"`([^`]+)`", GUIDE.split("    bagcert")[0])}
    assert {"5x5", "5", "2.4%", "5x5,2x12", "5x5|2x12", "area:24", "disk:5", "5x5@lower"} <= shown & written


def test_every_threat_of_the_guide_is_one() -> None:
    shown = re.findall(r"--patch '([^']+)'", GUIDE)
    assert len(shown) > 12 and all(parse_threat(patch, (32, 32)).describe() for patch in shown)


@pytest.mark.full
@pytest.mark.usefixtures("reader")
def test_every_line_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(LINES) > 12
    for line in LINES:
        command, *words = shlex.split(line)[1:]
        code = call(monkeypatch, command, *words, *QUICK.get(command, ()))
        assert code == 0, (line, capsys.readouterr().err)
