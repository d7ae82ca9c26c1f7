"""The networks on photographs: one run from training to ranks, and the page that shows them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.files import read_json
from bagcert.rows.certified import read_rows
from bagcert.rows.format import Evaluation
from studies.common.results import BENCHMARKS, RESULTS
from studies.common.subject import Subject
from studies.photographs import page as photographs_page
from studies.photographs import runs as photographs
from studies.photographs.runs import Bench, best_shares, carry_out


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hundred classes of 64x64 pixels, each of its own gray."""
    for number in range(100):
        for part, count in (("train", 11), ("val", 1)):
            place = tmp_path / "photos" / part / f"class{number:03}"
            place.mkdir(parents=True)
            for index in range(count):
                Image.fromarray(np.full((64, 64, 3), 2 * number, np.uint8)).save(place / f"{index}.png")
    return tmp_path / "photos"


@pytest.mark.slow
def test_a_run_leaves_rows_and_ranks(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(folder, tmp_path / RESULTS, tmp_path / "work", minutes=1.0, tiny=True)
    assert not bench.is_done("rf17")
    assert carry_out(["rf17"], bench).startswith("rf17: clean ")
    assert bench.is_done("rf17")
    rows = read_rows(bench.path("rf17", ".jsonl.gz"))
    assert len(rows.results) == len(photographs.PATCHES) * 2
    monkeypatch.setattr(photographs_page, "ROOT", tmp_path)
    line = next(line for line in photographs_page.accuracies() if line[0] == "rf17")
    assert len(line) == len(photographs_page.accuracies()[0]) and photographs_page.OPEN not in line
    assert photographs_page.one_hot_figure() is not None
    own = next(line for line in photographs_page.own_rules() if line[0] == "rf17")
    assert own[2] == "every-region" and own[3] == line[2] and own[4] == line[7]
    # Ranks never contradict certificates: a label proven to win is proven to be among the five best.
    subject = Subject.find(tmp_path / "work" / "rf17", "rf17", None)
    found = best_shares(subject, 20)
    for entry, certificate in rows.results.items():
        if entry.rule == "every-region":
            proven = (certificate.certified & (certificate.predicted == rows.labels)).float().mean()
            assert found["certified_top5"][entry.patch] >= float(proven)
    assert 0 <= found["clean_top5"] <= 1 and torch.tensor(found["images"]) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("path", photographs_page.TABLES, ids=lambda path: path.name)
def test_the_pages_are_those_of_the_stored_rows(path: Path) -> None:
    stored = path.read_text(encoding="utf-8")
    assert photographs_page.filled(path) == stored, "run python -m studies photographs page"


def test_the_tables_by_hand_are_those_of_the_files() -> None:
    page = photographs_page.PAGE.read_text(encoding="utf-8")
    feeding = read_json(BENCHMARKS / "feeding.json")
    speed, waited = f"{feeding['images_per_second']:,}", f"{100 * feeding['waited']:.1f} %"
    width, height = feeding["pictures"]
    assert f"| {width}x{height} | {feeding['workers']} | {speed} | {waited} |\n" in page
    for name, words in photographs_page.ONE_HOT.items():
        votes = (photographs_page.facts_of(name) or {})["curve"][-1]["votes"]
        assert f"| {words.removeprefix('σ = ')} | {votes:.0f} |\n" in page
    ours, theirs = (read_rows(photographs_page.stored(name, ".jsonl.gz") or Path()) for name in ("two-mask", "rf17"))
    best, papers = ours.accuracies(Evaluation("9x9", "two-mask")), theirs.accuracies(Evaluation("9x9", "every-region"))
    assert best.certified / papers.certified > 10 and "more than ten times as many images" in page
