"""The page is self-contained, shows no empty figure, and its numbers are those of the rows."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import bagcert
from bagcert.report.inputs import read_inputs
from bagcert.report.page import apart, build, command, program_of, write_report
from bagcert.report.tables import Table
from bagcert.rows.accuracy import wilson
from bagcert.rows.certified import Rows, read_rows
from bagcert.rows.format import Evaluation
from bagcert.rows.header import describe
from bagcert.rows.write import Plan, write_rows
from tests.report.report_rows import attack, certify
from tests.rows.digit_runs import DIGITS, save_digit_run
from tests.rows.forging import lines_of, write_lines

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """What a test wants to know of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self.headings: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id" and value]
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("td", "th") and data.strip():
            self.tables[-1][-1].append(data)
        if self.tags and self.tags[-1][0] == "h2" and data.strip():
            self.headings.append(data)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str, Path, list[Rows]]:
    tmp_path = tmp_path_factory.mktemp("report")
    first = certify(save_digit_run(tmp_path / "one"), "one", scores=True)
    second = certify(save_digit_run(tmp_path / "two", "sigmoid"), "two", scores=False, images=50)
    attacked = attack(tmp_path / "attacked.jsonl", read_rows(first))
    inputs = read_inputs([first, attacked, second])
    path = write_report(build(inputs, None), inputs, tmp_path / "out")
    text = path.read_text()
    return Page(text), text, tmp_path / "out", list(inputs.certified.values())


def test_the_page_needs_nothing_else(report: tuple[Page, str, Path, list[Rows]]) -> None:
    page, text, _, _ = report
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base"), tag
        for name in ("src", "href", "xlink:href", "srcset", "data", "action"):
            value = attributes.get(name) or ""
            assert value == "" or value.startswith(("#", "data:image/png;base64,")), (tag, value[:60])
    assert "@import" not in text and "@font-face" not in text
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", text))
    assert "prefers-color-scheme: dark" in text and "@media print" in text
    assert len(page.ids) == len(set(page.ids)), "two elements share a name"
    names = set(page.ids)
    assert set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', text)) == names


def test_no_figure_is_empty(report: tuple[Page, str, Path, list[Rows]]) -> None:
    page, text, out, _ = report
    figures = re.findall(r"<figure>(.*?)</figure>", text, flags=re.DOTALL)
    assert len(figures) >= 5 + 4
    for figure in figures:
        assert "<svg" in figure and (figure.count("<path") + figure.count("<image") + figure.count("<use")) > 3
        assert re.search(r"<figcaption>[^<]{10,}</figcaption>", figure)
    assert page.headings == [
        "What the attacker may do",
        "Clean and certified accuracy",
        "Certified accuracy against patch size",
        "Certified accuracy against aspect ratio",
        "Clean against certified accuracy",
        "Certified against attacked accuracy",
        "Between proof and attack",
        "Abstain unless certified",
        "Each class: one",
        "Each class: two",
        "Who comes closest",
        "Images",
        "How to reproduce",
    ]
    for name in ("patch-size", "aspect-ratio", "clean-certified", "certified-attacked", "rivals"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        svg = (out / f"{name}.svg").read_text()
        assert "</svg>" in svg and "#010203" not in svg and "var(--" not in svg
    assert "#010203" not in text and "#040506" not in text


def test_numbers_are_those_of_the_rows(report: tuple[Page, str, Path, list[Rows]]) -> None:
    page, text, out, all_rows = report
    accuracy, attacked, abstain, *classes = page.tables
    expected, answered = [], []
    for name, rows in zip(("one", "two"), all_rows, strict=True):
        images = len(rows.labels)
        for entry, certificate in rows.results.items():
            right = certificate.predicted == rows.labels
            clean, proven = int(right.sum()), int((right & certificate.certified).sum())
            cells = [name, entry.patch, entry.rule, str(images)]
            for count in (clean, proven):
                low, high = wilson(count, images)
                cells += [f"{100 * count / images:.2f}", f"{100 * low:.1f}–{100 * high:.1f}"]
            expected.append(cells)
            said = int(certificate.certified.sum())
            shares = [said / images, proven / images, (said - proven) / images, proven / said if said else 1]
            answered.append([name, entry.patch, entry.rule, *(f"{100 * share:.2f}" for share in shares)])
    assert accuracy[1:] == expected
    assert abstain[1:] == answered
    first = all_rows[0]
    assert f"is right on {expected[0][4]} % of 60 images, and on {expected[0][6]} % it is proven" in text
    own = first.results[Evaluation("1x1", "two-mask")]
    proven = int((own.certified & (own.predicted == first.labels))[:10].sum())
    clean = int((own.predicted == first.labels)[:10].sum())
    low, high, most, gap = (float(cell) for cell in attacked[1][4:8])
    assert (low, most, attacked[1][3], attacked[1][8]) == (10 * proven, 10 * clean, "10", "0")
    assert low <= high <= most and gap == high - low
    main = first.results[Evaluation("1x1", "every-region")]
    for line in classes[0][1:]:
        mine = first.labels == int(line[0])
        right = mine & (main.predicted == first.labels)
        assert line[2] == str(int(mine.sum()))
        assert line[3] == f"{100 * int(right.sum()) / int(mine.sum()):.2f}"
        assert line[4] == f"{100 * int((right & main.certified).sum()) / int(mine.sum()):.2f}"
    markdown = (out / "accuracies.md").read_text().splitlines()
    assert markdown[4:] == [f"| {' | '.join(cells)} |" for cells in expected]
    tex = (out / "accuracies.tex").read_text()
    assert r"clean \% & 95 \%" in tex and all(cells[6] in tex for cells in expected)


def test_commands_are_those_that_make_the_rows(report: tuple[Page, str, Path, list[Rows]]) -> None:
    _, text, _, rows = report
    assert "bagcert certify runs/one --data digits --split test --patch 1x1 --patch 2x2" in text
    assert "--rule every-region --rule two-mask --limit 60 --scores --out one.jsonl" in text
    header = {**rows[0].header, "kind": "attack", "patch": "1x1", "rule": "two-mask", "images": 10}
    header["attack"] = {"steps": 7, "sweep": True, "paper_place": False}
    assert command(header, "a.jsonl") == (
        "bagcert attack runs/one --data digits --split test --patch 1x1 --rule two-mask --steps 7 --sweep "
        "--limit 10 --out a.jsonl"
    )


ARITHMETIC = {
    "exact": "torch, cpu, float32, eager, channels_last",
    "fast": "torch, cpu, bfloat16, eager, channels_last, folded batch norm",
}


@pytest.mark.parametrize("program", ["exact", "fast"])
def test_the_page_names_the_program_of_the_proofs(tmp_path: Path, program: str) -> None:
    defense = bagcert.load(save_digit_run(tmp_path / "run"), program=program)
    path, plan = tmp_path / "rows.jsonl", Plan([Evaluation("1x1", "two-mask")], 20)
    write_rows(path, defense, plan, DIGITS.split("test"), describe("run", defense, DIGITS, "test"))
    found = build(read_inputs([path]), None)
    assert str(defense.program) in dict(found.facts)["run"]
    assert [" --program fast " in words for words in found.commands] == [program == "fast"]
    batches = ("batches of 1", "batches of 16", "batches of 7")  # such as those of an earlier version
    headers = [{"arithmetic": f"{ARITHMETIC[program]}, {size}"} for size in batches]
    assert [program_of(header) for header in headers] == [program] * 3


def test_no_command_writes_into_the_file_of_another() -> None:
    names = ["rows.jsonl", "rows.jsonl.gz", "attack-5x5.jsonl", "rows.jsonl", "attack-5x5.jsonl"]
    assert apart(names) == ["rows.jsonl", "rows.jsonl.gz", "attack-5x5.jsonl", "rows-2.jsonl", "attack-5x5-2.jsonl"]


def test_a_broken_proof_is_said_first(report: tuple[Page, str, Path, list[Rows]], tmp_path: Path) -> None:
    """Rows of an attack that changed certified answers, which no honest run gives."""
    _, text, _, (rows, *_) = report
    assert 'role="alert"' not in text
    forged = attack(tmp_path / "attacked.jsonl", rows)
    lines = lines_of(forged)
    for line in lines[:3]:
        line.update(certified=True, attacked=(line["predicted"] + 1) % 10, placement=[0, 0, 1, 1])
    write_lines(forged, lines)
    inputs = read_inputs([rows.path, forged])
    page = write_report(build(inputs, None), inputs, tmp_path / "out").read_text()
    assert "An attack has changed 3 certified answers: their proofs are wrong." in page


def test_text_is_escaped() -> None:
    table = Table("t", "T", "a < b", ("x<y", "n"), (("<b>&", "1–2 %"),), 1)
    assert "<b>" not in table.html() and "&lt;b&gt;&amp;" in table.html() and "a &lt; b" in table.html()
    assert r"<b>\& & 1--2 \%" in table.latex()
