"""The mutants that mutmut makes of functions, without running any."""

import ast
from collections.abc import Iterator
from pathlib import Path

from mutmut.mutation.file_mutation import mutate_file_contents

from tests.mutation.describe import place_and_change
from tests.mutation.equivalent import Key, Ordinals


def mutants_of(path: Path) -> Iterator[tuple[str, Key]]:
    """mutmut's name of each mutant of a file, and what the list of equivalent ones would call it."""
    made = mutate_file_contents(str(path), path.read_text("utf-8"))
    functions = {node.name: node for node in ast.walk(ast.parse(made.code)) if isinstance(node, ast.FunctionDef)}
    module, numbered = module_name(path), Ordinals()
    for name in made.mutant_names:
        mangled, mutant = name.partition("__mutmut_")[0], functions[name]
        mutant.name = f"{mangled}__mutmut_orig"
        _, change = place_and_change(functions[mutant.name], mutant)
        function = mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        yield f"bagcert.{module}.{name}", numbered(f"{module}.{function}", change)


def module_name(path: Path) -> str:
    """`src/bagcert/rules/sums.py` is rules.sums."""
    return ".".join(path.with_suffix("").parts[2:]).removesuffix(".__init__")
