"""The networks on photographs: one run from training to ranks, and the page that shows them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from bagcert.evaluation.rows import read_rows
from benchmarks import photographs, photographs_page
from benchmarks.photographs import Bench, best_shares, run
from benchmarks.storing import Subject


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
    bench = Bench(folder, tmp_path / "results", tmp_path / "work", minutes=1.0, tiny=True)
    assert not bench.is_done("rf17")
    assert run(["rf17"], bench).startswith("rf17: clean ")
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


@pytest.mark.parametrize("path", photographs_page.TABLES, ids=lambda path: path.name)
def test_the_pages_are_those_of_the_stored_rows(path: Path) -> None:
    stored = path.read_text(encoding="utf-8")
    assert photographs_page.filled(path) == stored, "run python -m benchmarks.photographs_page"
