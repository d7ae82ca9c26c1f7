"""Studies and benchmarks as commands: a caller's mistake is one line and exit code 2, as in `bagcert`."""

import ast
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from bagcert.errors import UsageError, unknown_name
from bagcert.program import PROGRAMS

ProgramOption = Annotated[str, typer.Option("--program", help=f"how scores are computed: {' or '.join(PROGRAMS)}")]


def call(*commands: Callable[..., Any]) -> None:
    """Run the command that the arguments name, or the only one."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=len(commands) > 1)
    for command in commands:
        app.command()(command)
    with one_line_errors():
        app()


def dispatch(folder: Path) -> None:
    """Run `python -m PACKAGE NAME ...` as `python -m PACKAGE.NAME ...`; without a name, list the names."""
    package, arguments, found = folder.name, sys.argv[1:], listed(folder)
    if not arguments or arguments[0] in ("--help", "-h"):
        print(f"Usage: python -m {package} NAME [OPTIONS]; NAME --help tells more.\n")
        for name, help_line in found.items():
            print(f"  {name:<{max(map(len, found))}}  {help_line}")
        return
    name, *rest = arguments
    with one_line_errors():
        if name not in found:
            raise unknown_name("command", name, found)
    sys.argv = [f"python -m {package} {name}", *rest]
    runpy.run_module(f"{package}.{name}", run_name="__main__", alter_sys=True)


def listed(folder: Path) -> dict[str, str]:
    """Every module or folder that can be run by name, with the first line of its docstring."""
    mains = {path.parent.name: path for path in folder.glob("*/__main__.py")}
    mains |= {path.stem: path for path in folder.glob("[!_]*.py")}
    docs = {name: ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) for name, path in mains.items()}
    return {name: (docs[name] or "").partition("\n")[0] for name in sorted(docs)}


def choose(noun: str, asked: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """The names that were asked for, refused unless all of them are known; all known ones if none were."""
    every = list(known)
    chosen = list(asked or every)
    for name in chosen:
        if name not in every:
            raise unknown_name(noun, name, every)
    return chosen


@contextmanager
def one_line_errors() -> Iterator[None]:
    try:
        yield
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
