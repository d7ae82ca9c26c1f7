"""Every mutant of a file, none of them run: mutmut's operators on all of it, each mutant one edit of its text.

mutmut itself leaves out decorated functions and all that stands outside functions.
"""

import ast
import subprocess
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import libcst as cst
from libcst.matchers import Name, matches
from libcst.metadata import MetadataWrapper, WhitespaceInclusivePositionProvider
from mutmut.mutation.file_mutation import MutationVisitor
from mutmut.mutation.mutators import mutation_operators
from mutmut.mutation.pragma_handling import IgnoredCode

from tests.mutation.describe import changed_function, place_and_change, way_to_change
from tests.mutation.equivalent import Key, Ordinals
from tests.mutation.mutant import Mutant

FOLDERS = ("src/bagcert/rules", "src/bagcert/threats")


class Visitor(MutationVisitor):
    """Visits decorated functions too, but not their decorators."""

    def _skip_node_and_children(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.FunctionDef):
            return False
        if isinstance(node, cst.Import | cst.ImportFrom):
            return True
        if isinstance(node, cst.Assign) and matches(node.targets[0].target, Name("__all__")):
            return True  # ruff's F822 finds a name that does not exist
        skipped: bool = super()._skip_node_and_children(node)
        return skipped


class File:
    """The text of a file, and where the nodes of its tree stand in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.wrapper = MetadataWrapper(cst.parse_module(self.text), unsafe_skip_copy=True)
        self.positions = self.wrapper.resolve(WhitespaceInclusivePositionProvider)
        self.lines = [0, *accumulate(len(line) for line in self.text.splitlines(keepends=True))]

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        place = self.positions[node]
        start, stop = (self.lines[end.line - 1] + end.column for end in (place.start, place.end))
        return start, stop

    def code(self, node: cst.CSTNode) -> str:
        return self.wrapper.module.code_for_node(node)


def all_mutants() -> Iterator[Mutant]:
    for folder in FOLDERS:
        for path in sorted(Path(folder).glob("*.py")):
            yield from mutants_of(path, path.read_text("utf-8"))


def keys_of(revision: str) -> set[Key]:
    """What the mutants of another revision are called."""
    listed = git("ls-tree", "-r", "--name-only", revision, *FOLDERS).split()
    made = (mutants_of(Path(path), git("show", f"{revision}:{path}")) for path in listed if path.endswith(".py"))
    return {mutant.key for mutants in made for mutant in mutants}


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


def mutants_of(path: Path, text: str) -> Iterator[Mutant]:
    file, numbered = File(text), Ordinals()
    visitor = Visitor(mutation_operators, IgnoredCode(set(), set(), set()))
    file.wrapper.visit(visitor)
    classes = {
        method: node.name.value
        for node in file.wrapper.module.body
        if isinstance(node, cst.ClassDef)
        for method in node.body.body
    }
    for mutation in visitor.mutations:
        old, new = file.code(mutation.original_node), file.code(mutation.mutated_node)
        if old == new:
            continue
        start, stop = file.span(mutation.original_node)
        assert file.text[start:stop].split() == old.split(), f"{path} is laid out in another way"
        function = mutation.contained_by_top_level_function
        first, last = file.span(function) if isinstance(function, cst.FunctionDef) else (0, len(file.text))
        way = way_to_change(parsed(file.text[first:last]), parsed(file.text[first:start] + new + file.text[stop:last]))
        outer = [classes[function]] if function in classes and first else []
        place, change = place_and_change(way)
        body = changed_function(way)
        key = numbered(".".join((module_name(path), *outer, place)), change)
        yield Mutant(str(path), *key, body and ".".join((*outer, body)), start, stop, new)


def parsed(text: str) -> ast.AST:
    """The text of a file, or of one function, however far to the right it stands."""
    if not text.lstrip("\n").startswith(" "):
        return ast.parse(text)
    return ast.parse(f"if True:\n{text}").body[0]


def module_name(path: Path) -> str:
    """`src/bagcert/rules/sums.py` is rules.sums."""
    return ".".join(path.with_suffix("").parts[2:]).removesuffix(".__init__")
