"""The numbers in README and docs/models.md are those of cards and stored rows."""

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from bagcert.config import apply_override
from bagcert.rows.accuracy import accuracies
from bagcert.rows.certified import read_rows
from bagcert.stored_models import card, shipped_models
from studies.common.results import RESULTS
from studies.rivals.results import standings

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent


def table_rows(page: str, cells: int) -> list[list[str]]:
    """The rows of all tables with so many cells on a page, without head and rule."""
    lines = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if len(row) == cells and row[0].startswith("`")]


def name_of(cell: str) -> str:
    return cell.split("`")[1]


def percent(share: float) -> str:
    return f"{100 * share:.2f}"


def test_the_results_of_the_readme_are_those_of_the_rows() -> None:
    rows = table_rows("README.md", 6)
    assert 0 < len(rows) <= 8
    found = {each.name: each for each in standings(ROOT / RESULTS)}
    assert set(shipped_models()) <= {name_of(row[0]) for row in rows}
    for name, patch, rule, clean, certified, passes in rows:
        standing = found[name_of(name)]
        shares = standing.at(rule, patch)
        assert shares is not None and standing.cost is not None, name
        assert (clean, certified) == (percent(shares.clean), percent(shares.certified)), name
        assert passes == f"{standing.cost.passes:,}", name
        assert standing.ours == ("(ours" in name), name


def test_the_models_page_agrees_with_the_cards() -> None:
    rows = table_rows("docs/models.md", 5)
    results = [row for row in rows if not row[4].startswith("`")]
    assert {name_of(row[0]) for row in results} == set(shipped_models())
    for name, patch, rule, clean, certified in results:
        (found,) = (row for row in card(name_of(name))["test"] if (row["patch"], row["rule"]) == (patch, rule))
        assert (clean, certified) == (percent(found["clean"]), percent(found["certified"])), name


def test_training_commands_are_those_on_the_cards() -> None:
    rows = {name_of(row[0]): row for row in table_rows("docs/models.md", 4)}
    assert rows.keys() == shipped_models().keys()
    for name, (_, _, minutes, command) in rows.items():
        assert command == f"`{card(name)['command']}`"
        assert minutes.startswith(f"{card(name)['seconds'] / 60:.1f}, ")
        assert ("alone" in minutes) == (not card(name).get("beside", 0))


def test_other_seeds_are_what_their_rows_say() -> None:
    rows = [row for row in table_rows("docs/models.md", 5) if row[4].startswith("`")]
    assert {name_of(row[4]) for row in rows} == {f"{RESULTS}/seeds/{path.name}" for path in stored_seeds()}
    for command, rule, clean, certified, path in rows:
        stored = read_rows(ROOT / name_of(path))
        (certificate,) = (
            found for entry, found in stored.results.items() if (entry.patch, entry.rule) == ("5x5", rule)
        )
        shares = accuracies(certificate, stored.labels)
        assert (clean, certified) == (percent(shares.clean), percent(shares.certified)), path
        words = shlex.split(name_of(command))
        assert str(stored.header["seed"]) == words[words.index("--seed") + 1], path
        recipe = stored.header["recipe"]
        asked = {section: dict(table) for section, table in recipe.items()}
        for option, value in pairwise(words):
            if option == "--set":
                apply_override(asked, value, ())
        assert asked == recipe, path


def stored_seeds() -> list[Path]:
    return sorted((ROOT / RESULTS / "seeds").glob("*.jsonl.gz"))
