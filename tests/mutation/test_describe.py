"""Mutants are named by their function and by what changes, whatever the layout of the source."""

import ast

import pytest

from tests.mutation.describe import changed_function, place_and_change, way_to_change
from tests.mutation.equivalent import Ordinals, read_list

BEFORE = """
FEW = 16
class Rule:
    def certify(self, scores, device):
        least = torch.empty(len(scores), dtype=torch.int64, device=device)
        return least if scores.sum(dim=1).amax(dim=0).item() > 0 else None
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("device=device)", "device=None)", ("Rule.certify", "device=device -> device=None")),
        ("> 0", ">= 0", ("Rule.certify", "… > 0 -> … >= 0")),
        ("amax(dim=0)", "amax(dim=1)", ("Rule.certify", "dim=0 -> dim=1")),
        ("FEW = 16", "FEW = 17", ("FEW", "FEW = 16 -> FEW = 17")),
        (
            "least if scores.sum(dim=1).amax(dim=0).item() > 0 else None",
            "None",
            ("Rule.certify", "return least if scores.sum(dim=1).amax(dim=0).item() > 0 else None -> return None"),
        ),
        (
            "dtype=torch.int64, device=device)",
            "dtype=torch.int64)",
            (
                "Rule.certify",
                "torch.empty(len(scores), dtype=torch.int64, device=device) -> "
                "torch.empty(len(scores), dtype=torch.int64)",
            ),
        ),
    ],
)
def test_a_change_is_named_by_what_changes(old: str, new: str, expected: tuple[str, str]) -> None:
    assert BEFORE.count(old) == 1
    after = BEFORE.replace(old, new)
    assert place_and_change(way_to_change(ast.parse(BEFORE), ast.parse(after))) == expected
    other_layout = [ast.parse(text.replace("(len", "(\n            len")) for text in (BEFORE, after)]
    assert place_and_change(way_to_change(*other_layout)) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("> 0", ">= 0", "Rule.certify"),
        ("self, scores, device", "self, scores, device=0", None),  # read when the function is defined
        ("FEW = 16", "FEW = 17", None),
    ],
)
def test_a_body_can_change_alone(old: str, new: str, expected: str | None) -> None:
    assert changed_function(way_to_change(ast.parse(BEFORE), ast.parse(BEFORE.replace(old, new)))) == expected


def test_equal_changes_of_one_place_are_numbered() -> None:
    numbered = Ordinals()
    keys = [numbered("rules.rule.own", "dim=0 -> dim=1") for _ in range(2)]
    assert [change for _, change in keys] == ["dim=0 -> dim=1", "dim=0 -> dim=1 #2"]


def test_every_entry_of_the_list_is_read() -> None:
    entries = read_list()
    assert len(entries) > 100 and all(" -> " in change for _, change in entries)
