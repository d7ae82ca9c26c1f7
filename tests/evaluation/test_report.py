"""The page is self-contained, shows no empty figure, and its numbers are those of the rows."""

import gzip
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import bagcert
from bagcert.data import ArrayDataset
from bagcert.errors import UsageError
from bagcert.evaluation.certifying import Plan, write_rows
from bagcert.evaluation.header import describe
from bagcert.evaluation.intervals import wilson
from bagcert.evaluation.report.inputs import read_inputs, unique
from bagcert.evaluation.report.page import build, command, write_report
from bagcert.evaluation.report.tables import Table
from bagcert.evaluation.rows import Evaluation, Rows, read_rows
from bagcert.scorers.saved import load_scorer
from tests.evaluation.digit_runs import DIGITS, save_digit_run

PATCHES = ("1x1", "2x2", "1x4", "4x1")
RULES = ("every-region", "two-mask")
FACTS = {"versions": {"torch": "2"}, "device": "CPU"}


def certify(run: Path, name: str, scores: bool, images: int = 60) -> Path:
    defense, (_, card) = bagcert.load(run), load_scorer(run)
    evaluations = [Evaluation(patch, rule) for patch in PATCHES for rule in RULES]
    path = run.parent / f"{name}.jsonl"
    header = describe(f"runs/{name}", card, defense, DIGITS, "test", FACTS)
    write_rows(path, defense, Plan(evaluations, images, scores), DIGITS.split("test"), header)
    return path


def attack(path: Path, rows: Rows, **changes: Any) -> Path:
    """An attack on the first ten images that changes the class of those that are not certified."""
    certificate = rows.results[Evaluation("1x1", "two-mask")]
    settings = {"steps": 7, "step_size": 0.025, "sweep": True, "paper_place": False}
    header = {**rows.header, "kind": "attack", "images": 10, "patch": "1x1", "rule": "two-mask", "attack": settings}
    lines: list[Any] = [header | changes]
    for number in range(10):
        predicted, proven = int(certificate.predicted[number]), int(certificate.certified[number])
        after = predicted if proven else (predicted + 1) % 10
        lines.append([number, int(rows.labels[number]), predicted, proven, after, None if proven else [0, 0, 1, 1]])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


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
    assert attacked[1][3:] == ["10", f"{10 * clean:.2f}", attacked[1][5], f"{10 * proven:.2f}", "0"]
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


def test_rows_of_an_early_version(tmp_path: Path) -> None:
    header = {"weights_sha256": "ab", "data": {"name": "cifar10", "digest": "1"}, "split": "test", "images": 2}
    header["evaluations"] = [{"patch": "5x5", "rule": "two-mask"}]
    (tmp_path / "model").mkdir()
    path = tmp_path / "model" / "rows.jsonl.gz"
    path.write_bytes(gzip.compress((json.dumps(header) + "\n[0,1,[[1,1]]]\n[1,0,[[1,0]]]\n").encode()))
    inputs = read_inputs([path])
    text = write_report(build(inputs, None), inputs, tmp_path / "out").read_text()
    assert "model is right on 50.00 % of 2 images" in text
    assert "No gallery: no rows here have scores beside them" in text
    assert "Patches: 5x5 pixels." in text
    assert "<figure>" not in text, "one evaluation makes no curve"


def test_a_gallery_without_images_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = certify(save_digit_run(tmp_path / "one"), "one", scores=True, images=20)
    inputs = read_inputs([path])
    other = ArrayDataset("digits", DIGITS.classes, ((0.0,), (1.0,)), DIGITS.train, DIGITS.test, "other")  # type: ignore[attr-defined]
    gallery = "bagcert.evaluation.report.gallery.framed_dataset"
    with monkeypatch.context() as patch:
        patch.setattr(gallery, lambda *_: other)
        assert "another digest" in build(inputs, None).gallery.missing

    def absent(*_: object) -> None:
        raise UsageError("expected CIFAR-10")

    with monkeypatch.context() as patch:
        patch.setattr(gallery, absent)
        assert build(inputs, None).gallery.missing == "the images are not here: expected CIFAR-10"
    (tmp_path / "one.scores").rename(tmp_path / "gone")
    assert "certify with --scores" in build(inputs, None).gallery.missing


def test_data_sets_are_not_mixed(tmp_path: Path) -> None:
    path = certify(save_digit_run(tmp_path / "one"), "one", scores=False, images=20)
    other = attack(tmp_path / "other.jsonl", read_rows(path), data={"name": "cifar10", "digest": "12345678"})
    with pytest.raises(UsageError, match=r"expected rows of one data set, got digits test .* and cifar10 test"):
        read_inputs([path, other])
    split = attack(tmp_path / "split.jsonl", read_rows(path), split="validation")
    with pytest.raises(UsageError, match="expected rows of one data set"):
        read_inputs([path, split])
    with pytest.raises(UsageError, match="expected at least one file of `bagcert certify`, got none"):
        read_inputs([other])
    (tmp_path / "text.jsonl").write_text("hello\n")
    with pytest.raises(UsageError, match="expected rows of an evaluation in"):
        read_inputs([tmp_path / "text.jsonl"])


def test_equal_names_are_told_apart() -> None:
    assert unique(["a/x", "b/x", "c/y"], ["1234567", "89", "0"]) == ["x 123456", "x 89", "y"]
    assert unique(["x", "x"], ["12", "12"]) == ["x 12 #1", "x 12 #2"]
    assert unique(["runs/a/0"], ["1"]) == ["a/0"]


def test_text_is_escaped() -> None:
    table = Table("t", "T", "a < b", ("x<y", "n"), (("<b>&", "1–2 %"),), 1)
    assert "<b>" not in table.html() and "&lt;b&gt;&amp;" in table.html() and "a &lt; b" in table.html()
    assert r"<b>\& & 1--2 \%" in table.latex()
