"""Figures from stored rows: all that can be drawn is drawn; what is missing is said with the command that makes it."""

import math
import re
from html import unescape
from pathlib import Path

import pytest
import torch

from bagcert.data import load_dataset
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.rows.format import meta_path
from bagcert.scorers.residual import ResidualScorer
from studies.common.results import RESULTS
from studies.figures import attack_example as illustration
from studies.figures.attacked import attacked, bounds
from studies.figures.catalog import write_figures
from studies.figures.conditions import by_rule, clean_certified
from studies.figures.example_1d import OTHER, TRUE, make_example
from studies.figures.patches import all_panels, aspect_ratios, patch_sizes
from studies.figures.plan import RECTANGLES, SWEEP, SweepModel, read_curve, sweep_rows
from studies.figures.score_functions import score_functions
from studies.figures.stored_results import Drawn, Stock
from tests.rows.digit_runs import save_digit_run
from tests.studies.figure_rows import fill_curves, fill_sweep

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Rows of every run of the sweep."""
    results = tmp_path_factory.mktemp("results")
    fill_sweep(results)
    fill_curves(results)
    return Stock(results)


def texts(drawn: Drawn) -> set[str]:
    """What is written in a figure."""
    assert drawn.picture is not None and drawn.picture.png.startswith(b"\x89PNG")
    return {unescape(words) for words in re.findall(r"<text[^>]*>([^<]*)</text>", drawn.picture.svg)}


def test_networks_are_drawn_by_every_condition(full: Stock) -> None:
    drawn = clean_certified(full)
    words = texts(drawn)
    assert {"Condition 3.3", "Condition 3.2", "two-mask", "cifar10-votes", "sweep, receptive field 13"} <= words
    assert {"clean accuracy, %", "certified accuracy, %"} <= words and drawn.notes == []
    for rows in full.sweep.found.values():
        shares = by_rule(rows)
        assert shares["largest-region"].certified <= shares["every-region"].certified <= shares["two-mask"].certified


def test_lines_are_the_rows_of_one_network(full: Stock) -> None:
    panels = all_panels(full, RECTANGLES)
    assert list(panels) == ["shipped models", "sweep, M = 0.5", "sweep, field 7"]
    rows = full.sweep.found[SweepModel(9, 0.5)]
    expected = [
        100 * rows.accuracies(entry).certified
        for patch in RECTANGLES
        for entry in rows.results
        if (entry.patch, entry.rule) == (patch, "every-region")
    ]
    assert panels["sweep, M = 0.5"]["field 9"] == list(zip(map(float, range(8)), expected, strict=True))
    assert panels["sweep, field 7"].keys() == {"M = 0.25", "M = 0.5", "M = 0.75", "M = 1.0"}
    assert {patch.replace("x", "×") for patch in RECTANGLES} <= texts(aspect_ratios(full))
    assert {str(side) for side in range(1, 11)} <= texts(patch_sizes(full))


def test_lines_are_broken_where_nothing_was_measured(tmp_path: Path) -> None:
    """Cards have 1x24 and 24x1 and nothing between."""
    lines = all_panels(Stock(tmp_path), RECTANGLES)["shipped models"]
    assert next(iter(lines)) == "cifar10, two-mask"
    for points in lines.values():
        assert [place for place, share in points if math.isfinite(share)] == [0, len(RECTANGLES) - 1]
    assert "cifar10, every-region" not in lines


def test_every_run_is_drawn_collapsed_ones_too(full: Stock) -> None:
    assert {"heaviside", "sigmoid", "softmax", "epochs", "accuracy, %"} <= texts(score_functions(full))
    assert {"field 5", "field 13", "M = 0.25", "accuracy under attack, %"} <= texts(attacked(full))
    curve = read_curve(full.results / "score-functions" / "sigmoid-1.jsonl")
    assert curve.collapsed and curve.epochs == [0.5, 1.0, 1.5, 2.0, 2.5]


def test_what_is_missing_is_said_with_its_command(full: Stock, tmp_path: Path) -> None:
    empty = Stock(tmp_path)
    assert clean_certified(empty).notes == [
        "without 20 of 20 sweep models; to make them: python -m studies sweep --runs 'rf*'"
    ]
    assert patch_sizes(empty).notes[0] == (
        "without 4 of 4 shipped models against all patches; to make them: python -m studies shipped shapes"
    )
    for builder in (attacked, score_functions, bounds):
        drawn = builder(empty)
        assert drawn.picture is None and "to make them: python -m studies " in drawn.notes[0]
    (tmp_path / "sweep").mkdir()
    model = SWEEP[3]
    for path in (sweep_rows(full.results, model), meta_path(sweep_rows(full.results, model))):
        (tmp_path / "sweep" / path.name).write_bytes(path.read_bytes())
    assert Stock(tmp_path).sweep.missing.startswith("without 19 of 20 sweep models")


def test_stored_rows_are_of_the_shipped_models_and_small() -> None:
    stock = Stock(ROOT / RESULTS)
    for rows in stock.shipped.found.values():
        assert len(rows.labels) == 10_000
    for attack in stock.bounds.found.values():
        assert attack.certified_accuracy <= attack.attacked_accuracy <= attack.clean_accuracy
        assert not len(attack.flips_of_certified)
    folders = (ROOT / RESULTS, ROOT / "src/bagcert/models")
    kept = [path for folder in folders for name in ("*.jsonl*", "*.meta.json") for path in folder.rglob(name)]
    assert sum(path.stat().st_size for path in kept) <= 12e6, "all rows of the project together"


def test_broken_curves_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "curve.jsonl"
    path.write_text('{"kind": "training"}\n{"step": 1, "certified": 0.1, "clean": 0.2}\n')
    with pytest.raises(UsageError, match=r"curve.jsonl does not hold accuracies over training \("):
        read_curve(path)


def test_the_example_is_that_of_the_paper() -> None:
    """App. A.1: +5 against 2·3 fails Condition 3.3; +1 against 0 meets Condition 3.2."""
    example = make_example()
    assert example.votes.tolist() == (example.logits >= 0).int().tolist()
    assert int(example.delta.sum()) == 5 and example.reached.nonzero().flatten().tolist() == [0, 1, 2]
    assert not bool(example.by_largest_region.certified) and bool(example.by_every_region.certified)
    worst = example.worst_votes
    assert example.by_every_region.lead is not None
    assert int((worst[TRUE] - worst[OTHER]).sum()) == int(example.by_every_region.lead) == 1
    assert example.loss == pytest.approx(-5 / 9)


def test_the_example_is_drawn(tmp_path: Path) -> None:
    found = dict(write_figures(["training-1d", "certification-1d"], Stock(tmp_path), tmp_path))
    assert {"input X", "Δ", "Σ Δ = +5", "L = −min(5/9, M = 0.75) = −0.56"} <= texts(found["training-1d"])
    assert {"Σ Δ = +5 ≤ 2·3", "not certified", "worst Σ Δ = +1 > 0", "certified"} <= texts(found["certification-1d"])
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{kind}" for name in found for kind in ("svg", "png")}


def test_an_attack_is_shown_with_its_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    open_to_attack = load(save_digit_run(tmp_path / "run"))
    assert isinstance(open_to_attack.scorer, ResidualScorer) and open_to_attack.scorer.head.bias is not None
    torch.nn.init.zeros_(open_to_attack.scorer.head.bias)  # else one class wins everywhere, whatever the image
    monkeypatch.setattr(illustration, "load", lambda model: open_to_attack)
    monkeypatch.setattr(illustration, "MODEL", str(tmp_path / "run"))
    monkeypatch.setattr(illustration, "MAIN_PATCH", "4x4")
    words = texts(illustration.attack_example(Stock(tmp_path)))
    for start in ("without sticker: ", "with sticker: "):
        assert any(word.startswith(start) for word in words)
    assert sum("votes for" in word for word in words) == 4

    defense = open_to_attack.against("4x4", "every-region")
    batch = next(iter(load_dataset("digits").split("test").batches(32, "cpu")))
    example = illustration.first_flip(defense, batch.images, batch.labels)
    assert example is not None and example.target != example.label
    row, column, height, width = example.placement
    changed = (example.clean != example.attacked).any(dim=0)
    changed[row : row + height, column : column + width] = False
    assert not bool(changed.any()), "nothing but the patch differs"
    assert int(defense.predict(torch.stack([example.attacked]))) == example.target


def test_without_images_the_attack_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAGCERT_DATA", str(tmp_path))
    drawn = illustration.attack_example(Stock(tmp_path, tmp_path))
    assert drawn.picture is None and drawn.notes[0].endswith("to fetch them: bagcert data cifar10")
