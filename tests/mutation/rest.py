"""Mutants where mutmut makes none: in decorated functions, in classes and in modules outside every function.

mutmut keeps every mutant of a function beside the original and picks one at run time, which it cannot do for a property
or a constant. Its operators are used here on the same files, one whole mutated file for each mutant.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.matchers import Name, matches
from libcst.metadata import MetadataWrapper
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutation.equivalent import Ordinals, normal
from tests.mutation.forked import Change, exit_codes

MUTMUTS_OWN = {"staticmethod", "classmethod"}  # the decorators that mutmut follows

# Quick ones first: the run of a mutant ends with the first test that fails.
TESTS = (
    *(f"tests/rules/test_{name}.py" for name in ("ranges", "bad_input", "input_types", "narrowing")),
    *(f"tests/threats/test_{name}.py" for name in ("threat", "regions", "probe", "tracing", "operations", "footprint")),
    "tests/scorers/test_wrapped.py",
    *(f"tests/rules/test_{name}.py" for name in ("properties", "definitions", "oracle", "unanimous")),
)


@dataclass(frozen=True)
class Mutant:
    """One changed file: where, what the changed statement reads now, and the whole text."""

    path: Path
    place: str
    change: str
    text: str

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
    before = module.code.splitlines()
    place = ".".join(path.with_suffix("").parts[2:]).removesuffix(".__init__")
    numbered = Ordinals()
    for mutation in visitor.mutations:
        changed = module.deep_replace(mutation.original_node, mutation.mutated_node)
        assert isinstance(changed, cst.Module)
        new = normal(line for line in changed.code.splitlines() if line not in before)
        if changed.code != module.code:
            yield Mutant(path, *numbered(place, new), changed.code)


def run_rest(folders: Iterable[Path], known: set[tuple[str, str]], children: int) -> list[tuple[str, str, str]]:
    """Every mutant with its module, its changed lines and what became of it."""
    mutants = [mutant for folder in folders for path in sorted(folder.glob("*.py")) for mutant in rest_of(path)]
    results = [(mutant.place, mutant.change, "skipped") for mutant in mutants if (mutant.place, mutant.change) in known]
    path = mutants[0].path
    [(_, code)] = exit_codes([Change(path, path.read_text("utf-8"), TESTS)], children=1)
    assert code == 0, f"the tests do not pass as it is: pytest ended with {code}"
    tried = {mutant.as_change: mutant for mutant in mutants if (mutant.place, mutant.change) not in known}
    for change, code in exit_codes(tried, children):
        mutant = tried[change]
        status = "survived" if code == 0 else "timeout" if code < 0 else "killed"
        results.append((mutant.place, mutant.change, status))
        print(*results[-1], flush=True)
    return results
