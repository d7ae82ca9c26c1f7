"""Rows of an attack are read back as they were written, and nothing else is taken for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bagcert.errors import UsageError
from bagcert.rows.attacked import read_attack_rows

HEADER = {"kind": "attack", "images": 4}
ROWS: list[list[Any]] = [
    [0, 3, 3, 1, 3, None],  # certified and kept
    [1, 3, 3, 0, 2, [0, 1, 5, 5]],  # not certified and flipped
    [2, 3, 1, 1, 1, None],  # wrong from the start
    [3, 3, 3, 1, 0, [7, 7, 5, 5]],  # a broken proof
]


def write(path: Path, lines: list[Any], end: str = "\n") -> Path:
    path.write_text("\n".join(json.dumps(line) for line in lines) + end, encoding="utf-8")
    return path


def test_accuracies(tmp_path: Path) -> None:
    rows = read_attack_rows(write(tmp_path / "rows.jsonl", [HEADER, *ROWS]))
    assert (rows.clean_accuracy, rows.certified_accuracy, rows.attacked_accuracy) == (0.75, 0.5, 0.25)
    assert rows.flips_of_certified.tolist() == [3]
    assert rows.header == HEADER and rows.certified.tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    ("lines", "end", "words"),
    [
        ([HEADER, *ROWS[:3]], "\n", "expected 4 rows in .*, got 3; go on to the end: the same command continues"),
        ([HEADER, *ROWS], "", "expected 4 rows in .*, got 3"),
        ([{**HEADER, "kind": "certificates"}, *ROWS], "\n", "expected rows of an attack in .*, got something else"),
        ([{"images": 4}, *ROWS], "\n", "expected rows of an attack in .*, got something else: 'kind'"),
        ([HEADER, *ROWS[1:], ROWS[0]], "\n", "expected rows of an attack in .*; give a file of `bagcert attack`"),
        ([HEADER, [0, 3, 3, 1, None, None], *ROWS[1:]], "\n", "give a file of `bagcert attack`"),
        ([HEADER, [0, 3, [[3, 1]]], *ROWS[1:]], "\n", "give a file of `bagcert attack`"),
        ([], "", "expected rows of an attack in .*, got something else"),
        ([3], "\n", "expected rows of an attack in .*, got something else"),
    ],
)
def test_other_files_are_refused(lines: list[Any], end: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        read_attack_rows(write(tmp_path / "rows.jsonl", lines, end))
