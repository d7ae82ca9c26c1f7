"""Mutants are edits of a text, of decorated functions and constants too, and go into living functions."""

import ast
from pathlib import Path

import pytest

from tests.mutation.live import change, functions_by_place
from tests.mutation.mutant import Mutant, read_plan, write_plan
from tests.mutation.mutants import mutants_of
from tests.mutation.run import status

TEXT = """
FEW = 16

class Rule:
    width: int = 3

    @property
    def half(self):
        return (self.width +
                1)

def least(values, start=0):
    return min(values) > start
"""


@pytest.mark.parametrize(
    ("code", "word"), [(0, "survived"), (5, "survived"), (1, "killed"), (2, "killed"), (-9, "timeout")]
)
def test_only_a_test_that_ran_kills(code: int, word: str) -> None:
    assert status(code) == word


def test_a_mutant_is_one_edit(tmp_path: Path) -> None:
    path = tmp_path / "src" / "bagcert" / "rules" / "toy.py"
    path.parent.mkdir(parents=True)
    path.write_text(TEXT, "utf-8")
    made = list(mutants_of(path, TEXT))
    assert all(ast.dump(ast.parse(mutant.text)) != ast.dump(ast.parse(TEXT)) for mutant in made)
    assert len({mutant.digest for mutant in made}) == len(made)
    ends = {(mutant.place.split("toy.")[1], mutant.change): mutant.function for mutant in made}
    assert ends["FEW", "FEW = 16 -> FEW = 17"] is None
    assert ends["Rule.width", "width: int = 3 -> width: int = 4"] is None
    assert ends["Rule.half", "self.width + 1 -> self.width - 1"] == "Rule.half"
    assert ends["least", "min(values) > start -> min(values) >= start"] == "least"
    write_plan(tmp_path / "plan.json.gz", made)
    assert read_plan(tmp_path / "plan.json.gz") == made


def test_a_living_function_is_changed() -> None:
    from bagcert.rules.certificate import own

    path = Path("src/bagcert/rules/certificate.py")
    mutant = next(made for made in mutants_of(path, path.read_text("utf-8")) if made.function == "own")
    code = own.__code__
    try:
        assert change(functions_by_place(), mutant) and own.__code__ != code
    finally:
        own.__code__ = code
    elsewhere = Mutant(mutant.path, *mutant.key, "nothing", mutant.start, mutant.stop, mutant.instead)
    assert not change(functions_by_place(), elsewhere) and own.__code__ is code
