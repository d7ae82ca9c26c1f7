"""The documentation site: every page is in its menu; it builds without a warning, and asks nobody else for anything."""

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown import markdown

from bagcert.cli.main import COMMANDS
from bagcert.rules import RULES
from tests.server.page.conftest import sandbox
from website.mathematics import makeExtension
from website.pages import on_page_content

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"(?:[a-z]+:)?//")
# Tags that make a browser fetch something, and where they say what.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1].split("\ntheme:")[0]
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert not pages - set(re.findall(r"[\w-]+\.md", menu)), "add the page to nav in mkdocs.yml"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """What a page makes a browser fetch, its anchors, and how many formulas it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.formulas = 0
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        self.formulas += tag == "math"
        if given.get(FETCHED.get(tag, "")) and given.get("rel") not in ("canonical", "next", "prev"):
            self.fetched.append(given[FETCHED[tag]])


@pytest.mark.full
def test_no_page_fetches_anything_from_outside(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    for path in pages:
        fetched = Page(path).fetched
        assert any(each.endswith(".js") for each in fetched), path
        assert not [each for each in fetched if OUTSIDE.match(each)], path
    for path in site.rglob("*.css"):
        named = re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", path.read_text(encoding="utf-8"))
        assert not [each for each in named if OUTSIDE.match(each)], path


@pytest.mark.full
def test_every_rule_has_its_proof_and_every_command_its_options(site: Path) -> None:
    proofs = Page(site / "rules.html")
    assert proofs.anchors >= RULES.keys()
    assert proofs.formulas > 100
    assert Page(site / "commands.html").anchors >= COMMANDS.keys()
    assert "--false-alerts" in (site / "commands.html").read_text(encoding="utf-8")


@pytest.mark.full
def test_tables_of_numbers_are_sorted_by_a_click(site: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium on this machine")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=sandbox())
        page = browser.new_page()
        page.goto((site / "models.html").as_uri())
        costs = page.locator("table", has=page.get_by_text("CPU ms")).first
        column = [each.strip() for each in costs.locator("th").all_inner_texts()].index("CPU ms") + 1
        for order in (sorted, lambda found: sorted(found, reverse=True)):
            costs.locator(f"th:nth-child({column})").click()
            found = [float(each) for each in costs.locator(f"td:nth-child({column})").all_inner_texts()]
            assert len(set(found)) > 2 and found == order(found)
        browser.close()


def test_units_and_powers_are_no_symbols() -> None:
    drawn = markdown(
        "`u <= v` and 2.9 M in 30 s, but 2 M_c; u = 2^-53 and a box of more <= 8u", extensions=[makeExtension()]
    )
    assert "2.9 M in 30 s," in drawn
    assert "2<sup>−53</sup>" in drawn
    assert "more ≤ 8u" in drawn
    assert drawn.count("<math") == 2  # 2 M_c, u
    assert "<code>u &lt;= v</code>" in drawn


def test_links_and_units_stay_what_they_are() -> None:
    drawn = markdown("[a page of its own](rules.md) on [b k i j], 18 images/s", extensions=[makeExtension()])
    assert drawn == '<p><a href="rules.md">a page of its own</a> on <code>[b k i j]</code>, 18 images/s</p>'


def test_cells_with_sentences_are_marked() -> None:
    text = "what <code>takes</code> more than a line on a phone"
    cells = on_page_content(f"<tr><td>short</td><td>{text}</td></tr>")
    assert cells == f'<tr><td>short</td><td class="sentence">{text}</td></tr>'
