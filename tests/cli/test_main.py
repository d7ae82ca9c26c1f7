"""The command line as a whole: it starts without torch, and every command has its row and its file."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bagcert
from bagcert.cli.main import COMMANDS, command
from tests.cli.calling import call


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_starting_needs_no_torch(arguments: list[str]) -> None:
    code = f"""
import sys
from bagcert.cli.main import main
sys.argv = ["bagcert", *{arguments!r}]
try:
    main()
finally:
    loaded = {{"torch", "numpy", "matplotlib"}} & set(sys.modules)
    print("loaded:", *loaded, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "loaded:\n" in done.stderr and "Traceback" not in done.stderr


def test_loading_a_model_does_not_import_the_compiler() -> None:
    code = """
import sys
import bagcert
assert bagcert.load("cifar10-small").scorer.positions is not None
print("loaded:", *{"torch._dynamo", "sympy"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "loaded:\n", done.stderr


def test_each_file_with_a_command_has_a_row_and_each_row_its_options() -> None:
    files = {path.stem: path.read_text(encoding="utf-8") for path in Path("src/bagcert/cli").glob("*.py")}
    assert {name for name, text in files.items() if f"\ndef {name}(" in text} - {"main"} == set(COMMANDS)
    assert all(command(name).params for name in COMMANDS)


def test_no_help_has_words_that_the_terminal_would_take_for_markup() -> None:
    """Square brackets are markup to rich: what stands inside them is not shown."""
    told = {(name, each.name): each.help or "" for name in COMMANDS for each in command(name).params if each.name}
    assert [place for place, words in told.items() if "[" in words] == []


def test_version(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == f"bagcert {bagcert.__version__}\n"


def test_public_names_are_the_ones_that_type_checkers_see() -> None:
    tree = ast.parse(Path("src/bagcert/__init__.py").read_text())
    seen = {
        alias.name: node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert {name: home for name, home in seen.items() if name in bagcert.__all__} == bagcert.HOMES
    assert all(getattr(bagcert, name).__name__ == name for name in bagcert.__all__)


def test_a_name_that_does_not_exist() -> None:
    with pytest.raises(AttributeError, match="module 'bagcert' has no attribute 'laod'"):
        bagcert.laod  # noqa: B018
