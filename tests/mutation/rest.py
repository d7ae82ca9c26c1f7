"""Mutants where mutmut makes none: in decorated functions, in classes and in modules outside every function.

mutmut keeps every mutant of a function beside the original and picks one at run time, which it cannot do for a property
or a constant. Its operators are used here on the same files, one whole mutated file for each mutant.
"""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.matchers import Name, matches
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutation.describe import place_and_change
from tests.mutation.equivalent import Key, Ordinals
from tests.mutation.forked import Change, exit_codes
from tests.mutation.functions import module_name

CODES = Path("mutants/rest.json")  # pytest's exit code for each mutant, by its digest
MUTMUTS_OWN = {"staticmethod", "classmethod"}  # the decorators that mutmut follows

# Quick ones first: the run of a mutant ends with the first test that fails.
TESTS = (
    *(f"tests/rules/test_{name}.py" for name in ("ranges", "bad_input", "input_types", "leads", "narrowing")),
    *(f"tests/threats/test_{name}.py" for name in ("threat", "notation", "regions", "probe", "state", "tracing")),
    *(f"tests/threats/test_{name}.py" for name in ("operations", "footprint", "per_position")),
    "tests/scorers/test_wrapped.py",
    *(f"tests/rules/test_{name}.py" for name in ("several_maps", "alerts", "unanimous")),
    *(f"tests/rules/test_{name}.py" for name in ("properties", "definitions", "oracle")),
)


@dataclass(frozen=True)
class Mutant:
    """One changed file: how the list of equivalent mutants calls it, and the whole text."""

    path: Path
    key: Key
    text: str

    @property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.path}\n{self.text}".encode()).hexdigest()

    @property
    def as_change(self) -> Change:
        near = [f"/test_{self.path.stem}.py", f"/{self.path.parts[2]}/"]  # tests of the same module, of the same folder
        return Change(self.path, self.text, tuple(sorted(TESTS, key=lambda test: [part not in test for part in near])))


class RestVisitor(MutationVisitor):
    """Visits just what mutmut skips."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            names = [decorator.decorator for decorator in node.decorators]
            mutmuts = len(names) == 1 and isinstance(names[0], cst.Name) and names[0].value in MUTMUTS_OWN
            return not names or mutmuts
        if isinstance(node, cst.Import | cst.ImportFrom):
            return True
        if isinstance(node, cst.Assign) and matches(node.targets[0].target, Name("__all__")):
            return True  # ruff's F822 finds a name that does not exist
        skipped: bool = super()._skip_node_and_children(node)
        return skipped


def rest_of(path: Path) -> Iterator[Mutant]:
    wrapper = MetadataWrapper(cst.parse_module(path.read_text("utf-8")))
    visitor = RestVisitor(mutation_operators, IgnoredCode(set(), set(), set()))
    module = wrapper.visit(visitor)
    before, numbered = ast.parse(module.code), Ordinals()
    for mutation in visitor.mutations:
        changed = module.deep_replace(mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        if changed.code != module.code:
            place, change = place_and_change(before, ast.parse(changed.code))
            yield Mutant(path, numbered(f"{module_name(path)}.{place}", change), changed.code)


def run_rest(files: Iterable[Path], known: set[Key], children: int) -> None:
    """Run every mutant, but for those known to change nothing or killed by an earlier run."""
    codes = read_codes()
    tried = {
        mutant.as_change: mutant
        for path in files
        for mutant in rest_of(path)
        if mutant.key not in known and status(codes.get(mutant.digest)) != "killed"
    }
    if not tried:
        return
    path = next(iter(tried)).path
    [(_, code)] = exit_codes([Change(path, path.read_text("utf-8"), TESTS)], children=1)
    assert code == 0, f"the tests do not pass as it is: pytest ended with {code}"
    for change, code in exit_codes(tried, children):
        codes[tried[change].digest] = code
        print(*tried[change].key, status(code), flush=True)
        CODES.parent.mkdir(exist_ok=True)
        CODES.write_text(json.dumps(codes), "utf-8")


def results_of_rest(files: Iterable[Path]) -> list[tuple[Key, str]]:
    """What became of every mutant."""
    codes = read_codes()
    return [(mutant.key, status(codes.get(mutant.digest))) for path in files for mutant in rest_of(path)]


def read_codes() -> dict[str, int]:
    codes: dict[str, int] = json.loads(CODES.read_text("utf-8")) if CODES.exists() else {}
    return codes


def status(code: int | None) -> str:
    """In mutmut's words."""
    if code is None:
        return "not checked"
    return "survived" if code == 0 else "timeout" if code < 0 else "killed"
