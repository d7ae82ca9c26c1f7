"""docs/reproduction.md says what cards, rows and results say, and names files and commands that exist."""

import re
import shlex

import pytest

from bagcert.cli.main import COMMANDS, command
from bagcert.stored_models import card
from studies.common.commands import listed
from studies.common.results import RESULTS, ROOT
from studies.figures.stored_results import Stock
from studies.reproduction import command as reproduction
from studies.reproduction.command import PAGE, TABLES, filled, read_result

pytestmark = pytest.mark.slow

TEXT = PAGE.read_text(encoding="utf-8")
STOCK = Stock(ROOT / RESULTS)  # reads rows when first asked


def test_tables_are_those_of_the_rows() -> None:
    assert filled(TEXT, STOCK) == TEXT, "run python -m studies reproduction"


def test_the_headline_is_on_the_cards() -> None:
    for line in reproduction.headline(STOCK)[1:]:
        _, _, model, _, patch, _, rule = shlex.split(line[3].strip("`"))
        found = next(row for row in card(model)["test"] if (row["patch"], row["rule"]) == (patch, rule))
        assert line[2] == f"{100 * found['clean']:.2f} / {100 * found['certified']:.2f}"


def test_changed_tables_are_noticed() -> None:
    changed = TEXT.replace("86 / 60", "86 / 61")
    assert changed != TEXT and filled(changed, STOCK) == TEXT


def test_figures_and_commands_exist() -> None:
    pictures = re.findall(r"\]\((figures/[^)]*)\)", TEXT)
    assert len(pictures) == 9 and all((PAGE.parent / picture).exists() for picture in pictures)
    commands = {name: command(name) for name in COMMANDS}
    for name in re.findall(r"`bagcert ([a-z]+)", TEXT):
        assert name in commands
    for package, name in re.findall(r"python -m (benchmarks|studies)[. ]([a-z0-9_]+)", TEXT):
        assert name in listed(ROOT / package)


def test_parameters_round_to_those_of_the_paper() -> None:
    for row in read_result("table1.json")["networks"]:
        if row["network"].startswith("paper"):
            assert round(row["parameters"] / 1e6) == reproduction.PAPER_MILLIONS[row["receptive_field"]]


@pytest.mark.parametrize("name", TABLES)
def test_every_line_of_a_table_has_all_its_cells(name: str) -> None:
    heads, *lines = TABLES[name](STOCK)
    assert lines and all(len(line) == len(heads) for line in lines)
