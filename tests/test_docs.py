"""Commands in README, docs and recipes exist with their options; the code and the commands of every guide run."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from bagcert.cli.main import COMMANDS, command
from bagcert.data import load_dataset
from bagcert.data.base import data_folder
from bagcert.data.cifar10 import batch_folder
from bagcert.stored_models import shipped_models
from studies.common.commands import listed
from tests.cli.calling import call

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted((ROOT / "src" / "bagcert" / "recipes").glob("*.toml"))
FORMAT = "bagcert rows"  # what the files of rows are called, not a command
GUIDE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_in(path: Path) -> list[list[str]]:
    """The words of every command that a page writes as code, or a recipe as a comment."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`]+)`", text) if path.suffix == ".md" else []
    lines = re.findall(r"^(?:    |#   )(.+)$", text, re.MULTILINE)
    found = [" ".join(span.split()) for span in (*spans, *lines)]
    commands = [command for command in found if command.startswith(("bagcert ", "python -m ")) and command != FORMAT]
    return [shlex.split(command, comments=True) for command in commands]


@pytest.mark.parametrize("path", [*PAGES, *RECIPES], ids=lambda path: path.name)
def test_every_command_exists_with_its_options(path: Path) -> None:
    commands = {name: command(name) for name in COMMANDS}
    for program, *words in commands_in(path):
        if program == "python":
            package, _, name = words[1].partition(".")
            if package in ("studies", "benchmarks"):
                assert (name or words[2]) in listed(ROOT / package), words
            continue
        name, *rest = words
        assert name in commands, f"bagcert {name}"
        known = {option for parameter in commands[name].params for option in parameter.opts} | {"--help"}
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= known, f"bagcert {name} has no {used - known}"


def test_commands_are_found_in_prose_blocks_and_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Use `bagcert certify\ncifar10 --limit 5` or:\n\n    bagcert demo  # all of it\n", encoding="utf-8")
    assert commands_in(page) == [["bagcert", "certify", "cifar10", "--limit", "5"], ["bagcert", "demo"]]
    assert commands_in(ROOT / "src" / "bagcert" / "recipes" / "digits.toml")[0][:3] == ["bagcert", "train", "digits"]


def readers_images(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, padding=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 10, 1))
    images = torch.rand(2, 3, 32, 32, generator=draw)
    votes = (torch.rand(2, 10, 32, 32, generator=draw) < 0.5).int()
    Image.new("RGB", (100, 80), "gray").save("picture.png")
    classes = [str(digit) for digit in range(10)]
    return {"images": images, "scores": votes, "network": network.eval(), "classes": classes}


def an_exported_graph(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    assert call(monkeypatch, "export", "cifar10-small", "--out", "model.onnx") == 0
    Image.new("LA", (100, 37), "gray").save("picture.png")
    return {}


def stored_rows(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for path in shipped_models()["cifar10-small"].glob("rows.*"):
        shutil.copy(path, path.name)
    return {}


def photos(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    Path("photos").mkdir()
    Image.linear_gradient("L").resize((640, 480)).convert("RGB").save("photos/street.png")
    Image.new("L", (40, 90), "gray").save("photos/gray.png")
    return {}


def own_network_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The module that the guide asks its reader to write."""
    first = GUIDE.findall((ROOT / "docs" / "your-network.md").read_text(encoding="utf-8"))[0]
    Path("my_network.py").write_text(first, encoding="utf-8")
    monkeypatch.syspath_prepend(str(Path.cwd()))
    return {}


def entry_file(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The module that the guide asks its reader to write, and the files of CIFAR-10."""
    first = GUIDE.findall((ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8"))[0]
    Path("entry.py").write_text(first, encoding="utf-8")
    load_dataset("cifar10")
    Path("cifar10").symlink_to(batch_folder(data_folder()).absolute())
    monkeypatch.syspath_prepend(str(Path.cwd()))
    return {}


def class_folders(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    for name in ("bees", "ladybugs"):
        Path("pictures", name).mkdir(parents=True)
        for number in range(15):
            picture = Image.linear_gradient("L").resize((32, 32)).rotate(90 * (name == "bees") + number)
            picture.convert("RGB").save(f"pictures/{name}/{number}.png")
    return {}


def nothing(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {}


# What a reader of each page with code has at hand.
GUIDES: dict[str, Callable[[pytest.MonkeyPatch], dict[str, Any]]] = {
    "README.md": readers_images,
    "deploy.md": an_exported_graph,
    "detection.md": readers_images,
    "leaderboard.md": entry_file,
    "quickstart.md": nothing,
    "reading-a-certificate.md": nothing,
    "rows.md": stored_rows,
    "several-answers.md": readers_images,
    "threats.md": nothing,
    "your-network.md": own_network_file,
    "your-pictures.md": photos,
}

# Guides for newcomers: their commands run as written, one after another in one folder, with what is at hand there. The
# words that are added to a command of some name only make it shorter.
WALKS: dict[str, dict[str, list[str]]] = {
    "quickstart.md": {},
    "your-data.md": {"train": ["--set", "schedule.warmup_epochs=0", "--set", "schedule.epochs=1"]},
    "your-network.md": {"train": ["--set", "schedule.epochs=9"]},
    "your-pictures.md": {},
}
AT_HAND = {"your-data.md": class_folders, **GUIDES}  # pages without code in Python, too


def test_every_page_with_code_is_run() -> None:
    assert {path.name for path in PAGES if GUIDE.search(path.read_text(encoding="utf-8"))} == GUIDES.keys()


@pytest.mark.full
@pytest.mark.parametrize("path", [path for path in PAGES if path.name in GUIDES], ids=lambda path: path.name)
def test_the_code_of_a_guide_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at_hand = GUIDES[path.name](monkeypatch)
    for block in GUIDE.findall(path.read_text(encoding="utf-8")):
        if "import pandas" in block:
            pytest.importorskip("pandas")
        exec(compile(block, path.name, "exec"), dict(at_hand))


@pytest.mark.full
def test_the_foreign_entry_of_the_guide_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    entry_file(monkeypatch)
    exec(
        compile(GUIDE.findall((ROOT / "docs" / "leaderboard.md").read_text(encoding="utf-8"))[1], "use.py", "exec"), {}
    )
    assert call(monkeypatch, "leaderboard", "check", "entries", "--out", "page.md") == 0
    assert "### Arithmetic checked: cifar10, 5x5, this answer" in Path("page.md").read_text(encoding="utf-8")


@pytest.mark.full
def test_the_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Cell after cell; what is said about proofs is so, on whatever machine."""
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "docs" / "tour.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] or "=" in "".join(cell["source"]), "stored with what it shows"
            exec(compile("".join(cell["source"]), "tour.ipynb", "exec"), names)
    assert not bool(names["attack"].unsound.any())
    assert re.search(r"image \d+, proven: (\w+), attacked: \1\n", capsys.readouterr().out)


@pytest.mark.full
@pytest.mark.parametrize("name", WALKS)
def test_the_commands_of_a_guide_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    AT_HAND.get(name, nothing)(monkeypatch)
    lines = re.findall(r"^    (bagcert .+)$", (ROOT / "docs" / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        assert call(monkeypatch, *words, *WALKS[name].get(words[0], [])) == 0, line
