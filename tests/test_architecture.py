"""What docs/architecture.md says of the code is there: every folder, file and function it names."""

import ast
import re
from pathlib import Path

import bagcert

PACKAGE = Path(bagcert.__file__).parent
ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def functions(path: Path) -> set[str]:
    """The functions of a file that can run: not those that others must fill in."""
    defined = [
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {node.name for node in defined if "abstractmethod" not in map(ast.unparse, node.decorator_list)}


def test_every_step_of_the_walks_is_there() -> None:
    steps = re.findall(r"`([a-z0-9_/]+\.py):([a-z_0-9]+)`", PAGE)
    assert len(steps) > 30
    for file, function in steps:
        assert function in functions(PACKAGE / file), f"{file}:{function}"


def test_every_package_has_a_row() -> None:
    table = PAGE.split("| folder | holds |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| `([a-z]+)/` \|", table, re.MULTILINE)
    folders = [path.name for path in PACKAGE.iterdir() if path.is_dir() and not path.name.startswith("_")]
    assert sorted(rows) == sorted(folders)


def test_every_module_beside_the_packages_has_a_row() -> None:
    table = PAGE.split("| folder | holds |")[1].split("\n\n")[0]
    rows = re.findall(r"`([a-z_]+\.py)`", "\n".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    modules = [path.name for path in PACKAGE.glob("*.py") if not path.name.startswith("__")]
    assert sorted(rows) == sorted(modules)


def test_every_path_that_docs_name_is_there() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"`((?:src|docs|studies|benchmarks|tests)/[\w./-]+[\w/])`", text):
            pattern = re.sub(r"[A-Z]{3,}", "*", name)  # MODEL stands for any
            assert (ROOT / name).exists() or list(ROOT.glob(pattern)), f"{page.name}: {name}"
