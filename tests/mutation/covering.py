"""Which tests run which functions of the rules and the threats, and how long each test takes.

python -m tests.mutation.covering    (writes `mutants/covering.json.gz`)
"""

import gzip
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from tests.mutation.forked import QUIET
from tests.mutation.mutant import Mutant

COVERING = Path("mutants/covering.json.gz")
LEFT_OUT = Path("mutants/failing.txt")  # the tests that fail as it is, on this machine
SELECTION = ("tests/rules", "tests/threats", "tests/scorers/test_wrapped.py", "tests/test_speaking.py")


class Recorder:
    """A plugin of pytest that notes every function a test enters."""

    def __init__(self) -> None:
        self.functions: dict[str, set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.test = ""  # none: while the tests are collected
        self.known: dict[object, str] = {}

    def enter(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            name = self.known.get(frame.f_code)
            if name is None:
                name = self.known[frame.f_code] = function_name(frame)
            if name:
                self.functions[self.test].add(name)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.test, start = item.nodeid, time.perf_counter()
        sys.setprofile(self.enter)
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            self.test, self.seconds[item.nodeid] = "", time.perf_counter() - start


def function_name(frame: FrameType) -> str:
    """`src/bagcert/rules/rule.py:Rule.certify`; of a function in a function, the outer one; nothing for other files."""
    path = Path(frame.f_code.co_filename)
    if "bagcert" not in path.parts or path.parts[-2] not in ("rules", "threats"):
        return ""
    return f"src/bagcert/{path.parts[-2]}/{path.name}:{frame.f_code.co_qualname.partition('.<locals>')[0]}"


def record() -> int:
    recorder = Recorder()
    sys.setprofile(recorder.enter)
    code = int(pytest.main([*QUIET, *SELECTION], plugins=[recorder]))
    tests: dict[str, object] = {"": sorted(recorder.functions[""])}
    tests |= {test: [seconds, sorted(recorder.functions[test])] for test, seconds in recorder.seconds.items()}
    COVERING.parent.mkdir(exist_ok=True)
    COVERING.write_bytes(gzip.compress(json.dumps(tests).encode()))
    return code


class Covering:
    """For each mutant the tests that may notice it, quick ones first."""

    def __init__(self) -> None:
        tests = json.loads(gzip.decompress(COVERING.read_bytes()))
        for test in LEFT_OUT.read_text("utf-8").splitlines() if LEFT_OUT.exists() else []:
            tests.pop(test)
        self.on_import: set[str] = set(tests.pop(""))
        self.ordered: list[str] = sorted(tests, key=lambda test: float(tests[test][0]))
        self.functions: dict[str, set[str]] = {test: set(functions) for test, (_, functions) in tests.items()}
        self.files = sorted({test.partition("::")[0] for test in tests})

    def of(self, mutant: Mutant) -> list[str]:
        """Of a function the tests that run it; of what is read on import all tests, those of the file first."""
        if mutant.function:
            return self.those(lambda name: name == name_of(mutant))
        return list(dict.fromkeys([*self.those(lambda name: name.startswith(f"{mutant.path}:")), *self.ordered]))

    def leave_out(self, test: str) -> None:
        with LEFT_OUT.open("a", encoding="utf-8") as file:
            file.write(f"{test}\n")
        self.ordered.remove(test)

    def those(self, is_wanted: Callable[[str], bool]) -> list[str]:
        """The tests that run a function of such a name."""
        return [test for test in self.ordered if any(map(is_wanted, self.functions[test]))]

    def is_run_on_import(self, mutant: Mutant) -> bool:
        return name_of(mutant) in self.on_import


def name_of(mutant: Mutant) -> str:
    return f"{mutant.path}:{mutant.function}"


if __name__ == "__main__":
    raise SystemExit(record())
