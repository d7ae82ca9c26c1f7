"""Run tests against mutants of functions: in a fork of a process that has collected all tests, one function is changed.

So a mutant costs no more than the tests that run until one fails. What a function returned while files were imported
stays as it was: `run.py` tries such a mutant again on a changed copy, if it survives.
"""

import gc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.forked import forked
from tests.mutation.mutant import Mutant

Place = tuple[str, str, int]  # folder and file, qualified name, first line
CANNOT = 3  # the exit code for a mutant that needs a changed copy


@dataclass
class Live:
    """A plugin of pytest that runs the tests of each mutant in a process of its own, instead of all tests once."""

    mutants: list[Mutant]
    tests: Callable[[Mutant], list[str]]
    ended: Callable[[Mutant, int], None]  # is told the exit code of each
    leave_out: Callable[[str], None]  # is told of each test that fails as it is
    children: int
    limit: float

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        functions, named = functions_by_place(), {item.nodeid: item for item in session.items}

        def run(mutant: Mutant) -> int:
            items = [named[test] for test in self.tests(mutant) if test in named]
            return any_fails(session, items) if change(functions, mutant) else CANNOT

        for test in self.failing(session):
            print(f"fails as it is and is left out: {test}", flush=True)
            self.leave_out(test)
        for mutant, code in forked(self.mutants, run, self.children, self.limit):
            self.ended(mutant, code)
        return True

    def failing(self, session: pytest.Session) -> list[str]:
        """The tests that fail without any mutant: first file by file, then one by one in files that do."""
        by_file: dict[Path, list[pytest.Item]] = {}
        for item in session.items:
            by_file.setdefault(item.path, []).append(item)
        whole = forked(by_file.values(), lambda items: any_fails(session, items), self.children)
        alone = [item for items, code in whole if code for item in items]
        one_by_one = forked(alone, lambda item: any_fails(session, [item]), self.children)
        return [item.nodeid for item, code in one_by_one if code]


def any_fails(session: pytest.Session, items: list[pytest.Item]) -> bool:
    """Run tests up to the first that fails; of none, none fails."""
    for item, following in pairwise([*items, None]):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return True
    return False


def functions_by_place() -> dict[Place, list[FunctionType]]:
    """Every function of the package that is alive, whatever is wrapped around it."""
    found: dict[Place, list[FunctionType]] = {}
    for function in gc.get_objects():
        if type(function) is FunctionType and (function.__module__ or "").startswith("bagcert."):
            found.setdefault(place(function.__code__), []).append(function)
    return found


def place(code: CodeType) -> Place:
    return "/".join(Path(code.co_filename).parts[-2:]), code.co_qualname, code.co_firstlineno


def change(functions: dict[Place, list[FunctionType]], mutant: Mutant) -> bool:
    """Give a function the body of a mutant; whether that is possible."""
    whole = compile(mutant.text, mutant.path, "exec")
    codes = [code for code in codes_within(whole) if code.co_qualname == mutant.function]
    if len(codes) != 1 or place(codes[0]) not in functions:
        return False
    for function in functions[place(codes[0])]:
        if len(codes[0].co_freevars) != len(function.__code__.co_freevars):
            return False
        function.__code__ = codes[0]
    return True


def codes_within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_within(constant)
