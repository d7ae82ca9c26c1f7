"""Every number that stored rows stand for, counted once and kept: a change of format moves none of them."""

import json
from pathlib import Path

import pytest

from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.certified import read_rows
from bagcert.rows.format import ATTACK, read_meta

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PUBLISHED: dict[str, dict[str, dict[str, int]]] = json.loads(Path(__file__).with_name("published.json").read_text())


def stored_rows() -> dict[str, Path]:
    """All rows of the repository, by path without ending; other lines of a study have no description beside them."""
    found = [*ROOT.glob("src/bagcert/models/*/*.jsonl.*"), *ROOT.glob("studies/results/**/*.jsonl.*")]
    names = {str(path.relative_to(ROOT)).partition(".jsonl")[0]: path for path in sorted(found)}
    return {name: path for name, path in names.items() if (ROOT / f"{name}.meta.json").exists()}


def counts(path: Path) -> dict[str, dict[str, int]]:
    """What can be counted in a file, for each evaluation."""
    if read_meta(path).kind == ATTACK:
        attack = read_attack_rows(path)
        right, proven = attack.predicted == attack.labels, attack.certified
        kept = {"attacked": attack.attacked == attack.labels, "flips": proven & (attack.attacked != attack.predicted)}
        columns = {"clean": right, "certified": right & proven, "answered": proven, **kept}
        table = {name: int(flags.sum()) for name, flags in columns.items()}
        return {f"{attack.header['patch']} {attack.header['rule']}": {"images": len(attack.labels), **table}}
    rows = read_rows(path)
    found = {}
    for entry, certificate in rows.results.items():
        right, proven = certificate.predicted == rows.labels, certificate.certified
        columns = {"clean": right, "certified": right & proven, "answered": proven}
        table = {name: int(flags.sum()) for name, flags in columns.items()}
        found[f"{entry.patch} {entry.rule}"] = {"images": len(rows.labels), **table}
    return found


def test_all_rows_are_counted() -> None:
    assert sorted(stored_rows()) == sorted(PUBLISHED)


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_numbers_stay(name: str) -> None:
    assert counts(stored_rows()[name]) == PUBLISHED[name]
