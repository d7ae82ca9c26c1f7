"""Rows of an attack are read back as they were written, and nothing else is taken for them."""

from pathlib import Path
from typing import Any

import pytest

from bagcert.errors import UsageError
from bagcert.rows.attacked import read_attack_rows, summary
from bagcert.rows.format import AttackRecord
from tests.rows.forging import lines_of, make_rows, write_lines

HEADER: dict[str, Any] = {"kind": "attack", "images": 4, "patch": "5x5", "rule": "two-mask"}
ROWS = [
    AttackRecord("5x5", "two-mask", 0, 3, 3, True, 3, None),  # certified and kept
    AttackRecord("5x5", "two-mask", 1, 3, 3, False, 2, (0, 1, 5, 5)),  # not certified and flipped
    AttackRecord("5x5", "two-mask", 2, 3, 1, True, 1, None),  # wrong from the start
    AttackRecord("5x5", "two-mask", 3, 3, 3, True, 0, (7, 7, 5, 5)),  # a broken proof
]


def test_accuracies(tmp_path: Path) -> None:
    rows = read_attack_rows(make_rows(tmp_path / "rows.jsonl", HEADER, ROWS))
    assert (rows.clean_accuracy, rows.certified_accuracy, rows.attacked_accuracy) == (0.75, 0.5, 0.25)
    assert rows.flips_of_certified.tolist() == [3]
    assert rows.header == HEADER and rows.certified.tolist() == [True, False, True, True]
    assert summary(rows) == [
        {
            "patch": "5x5",
            "rule": "two-mask",
            "clean_accuracy": 0.75,
            "certified_accuracy": 0.5,
            "attacked_accuracy": 0.25,
            "flips_of_certified": 1,
        }
    ]


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ({"images": 5}, "holds 4 of 5 images. Repeat the same bagcert attack command: it continues."),
        ({"images": 3}, r"The attack in .* cannot be read \(ValueError: more text than"),
        ({"kind": "certificates"}, r"rows.jsonl does not hold rows of an attack \('evaluations'\)"),
        ({"rule": None}, r"rows.jsonl does not hold rows of an attack \(an evaluation without"),
        ({"rule": "masked"}, r"The records in .* must go image by image .*\. Attack again\."),
    ],
)
def test_other_headers_are_refused(header: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        read_attack_rows(make_rows(tmp_path / "rows.jsonl", HEADER | header, ROWS))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"image": 2}, "The records in .* must go image by image"),
        ({"attacked": None}, r"attacked that is no int\)\. Make the file again with bagcert attack\."),
        ({"certified": 1}, "certified that is no bool"),
        ({"placement": [0, 1, 5]}, "a placement that is not four numbers"),
        ({"attacked": 2**70}, "Some numbers in .* do not fit into 64 bits"),
    ],
)
def test_other_records_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = make_rows(tmp_path / "rows.jsonl", HEADER, ROWS)
    lines = lines_of(path)
    lines[1].update(change)
    write_lines(path, lines)
    with pytest.raises(UsageError, match=words):
        read_attack_rows(path)
