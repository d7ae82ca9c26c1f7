"""Imports point one way: image, scores, rule, certificate, rows. Each package says which parts it may import."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import bagcert

PACKAGE = Path(bagcert.__file__).parent
PACKAGES = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
# The modules beside the packages, and what each may import.
MODULES = {
    "errors": set(),
    "tensors": set(),
    "distributed": set(),
    "version": set(),
    "program": {"errors", "version"},
    "files": {"errors"},
    "config": {"errors"},
    "certify": {"errors", "threats", "rules"},
    "shipped": {"errors"},
    "several_answers": {"certify", "rules", "threats"},
    "answers": {"errors", "pictures", "rules", "threats"},
    "showing": {"answers", "errors", "pictures", "threats"},
    "hub": {"errors", "scorers", "version"},
    "stored_models": {"errors", "hub", "scorers"},
    "publishing": {"errors", "files", "hub", "scorers", "stored_models"},
    "zoo": {"files", "program", "scorers", "stored_models"},
    "defense": {
        "answers",
        "errors",
        "files",
        "pictures",
        "program",
        "tensors",
        "threats",
        "rules",
        "scorers",
        "attacks",
        "shipped",
        "showing",
        "stored_models",
    },
    "defending": {"config", "defense", "errors", "pictures", "rules", "scorers", "threats"},
}
OUTSIDE = {"__init__", "__main__"}  # they may import everything, and nobody imports them


def parts_imported(path: Path) -> set[str]:
    """The parts of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [node.module or ""]
        found |= {name.split(".")[1] for name in names if name.startswith("bagcert.")}
        assert "bagcert" not in names, f"{path}: import the part, not the package"
    return found


def declared(package: str) -> set[str]:
    """What the last line of a package's docstring says that it may import."""
    docstring = ast.get_docstring(ast.parse((PACKAGE / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    found = re.fullmatch(r"May import: ([a-z_, \n]+)\.", docstring.split("\n\n")[-1])
    assert found, f"{package}/__init__.py: the docstring ends with 'May import: a, b.'"
    return {name.strip() for name in found[1].split(",")}


def needs(part: str) -> set[str]:
    """The other parts that a package or module imports."""
    files = PACKAGE.joinpath(part).rglob("*.py") if part in PACKAGES else [PACKAGE / f"{part}.py"]
    return set[str]().union(*(parts_imported(path) for path in files)) - {part}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_what_it_says(package: str) -> None:
    assert needs(package) == declared(package)


def test_modules_import_only_earlier_parts() -> None:
    names = {path.stem for path in PACKAGE.glob("*.py")} - OUTSIDE
    assert names == MODULES.keys()
    for name, allowed in MODULES.items():
        assert needs(name) <= allowed, name


def test_imports_point_one_way() -> None:
    TopologicalSorter({part: needs(part) for part in [*PACKAGES, *MODULES]}).prepare()  # raises on a cycle
    users = {part for part in [*PACKAGES, *MODULES] if "cli" in needs(part)}
    assert not users, "cli holds nothing that another part imports"


def test_no_module_name_twice() -> None:
    """Outside `cli`, where a command has the name of what it calls, and `base`."""
    names = [path.stem for path in PACKAGE.rglob("*.py") if "cli" not in path.parts and path.stem not in OUTSIDE]
    twice = {name for name in names if names.count(name) > 1} - {"base"}
    assert not twice


def test_no_file_is_long_and_no_folder_deep() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path
        folders = path.relative_to(PACKAGE).parts[:-1]
        assert len(folders) <= 1 or folders == ("rows", "verify"), path
