"""`bagcert recipes` and docs/recipes.md: every key with its meaning, from one source."""

from pathlib import Path

import pytest

from bagcert.config import keys, write_config
from bagcert.training.recipe import SECTIONS, load_recipe, recipe_names
from bagcert.training.recipe_keys import explain, headline, kinds_of, markdown
from tests.cli.calling import call

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
KINDS = [(section, name) for section in SECTIONS for name in kinds_of(section)]


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "bagcert recipes --markdown > docs/recipes.md"


@pytest.mark.parametrize(("section", "name"), KINDS)
def test_every_key_has_a_meaning(section: str, name: str) -> None:
    kind = kinds_of(section)[name]
    assert all(key.meaning for key in keys(kind).values()), kind
    defaults = write_config(kind())
    assert [row.key for row in explain(kind())] == [key for key in defaults if key != "name" or section == "data"]


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_values_lie_in_their_ranges(name: str) -> None:
    for section in SECTIONS:
        config = getattr(load_recipe(name), section)
        for key, row in keys(type(config)).items():
            row.check(getattr(config, key), f"{section}.{key}")
    assert headline(name).endswith((".", "..."))


def test_all_recipes_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(monkeypatch, "recipes") == 0
    shown = capsys.readouterr().out
    assert all(f" {name} " in shown for name in recipe_names())


def test_a_recipe_is_explained(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert call(monkeypatch, "recipes", "two-mask-cifar10") == 0
    shown = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert [
        "optimizer.lr",
        "0.06",
        "0.03",
        "learning rate of the convolutions: the angle of a step (0 to 100)",
    ] in shown
    assert ["network.kernels", "[3, 1, 3, 1, 1, 1, 1, 1]", "[3, 1, 3, 1, 1, 1, 1, 1]"] in [row[:3] for row in shown]
    assert [
        "loss.name",
        '"two-mask"',
        "",
        "or margin, detect, masked, cross-entropy, unmasked, two-mask-pixels, interval",
    ] in shown


def test_an_unknown_recipe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch, "recipes", "folder-23") == 2
    assert "Unknown recipe 'folder-23'. Did you mean 'folder-32'?" in capsys.readouterr().err
