"""The sweep on a stand-in for CIFAR-10: what it keeps is what the figures read."""

from pathlib import Path

import pytest

from bagcert.errors import UsageError
from bagcert.scorers.residual import CIFAR_KERNELS
from bagcert.training.loop import RunOptions
from bagcert.training.losses import MarginLoss
from bagcert.training.recipe import Recipe
from bagcert.training.run import Diverged
from studies.common import training
from studies.figures.plan import (
    SCORE_RUNS,
    SWEEP,
    SWEEP_EVALUATIONS,
    ScoreRun,
    SweepModel,
    read_curve,
    score_curve,
    sweep_attack,
    sweep_rows,
)
from studies.figures.stored_results import Stock
from studies.sweep import command as sweep
from studies.sweep import runs as sweep_runs
from studies.sweep.runs import FULL, TINY, Bench, SweepRun, carry_out, is_done, matching, recipe_of
from tests.data.tiny_cifar10 import TINY_RECORDS, TinyCifar10

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tiny_cifar10: TinyCifar10, tmp_path: Path) -> Bench:
    tiny_cifar10.write(tmp_path / "data")
    return Bench(TINY, tmp_path / "results", tmp_path / "work", tmp_path / "data")


def test_a_model_is_trained_certified_and_attacked(bench: Bench) -> None:
    model = SweepModel(5, 0.25)
    assert not is_done(model, bench.results)
    assert carry_out(model, bench).startswith(f"{model.name}: clean ")
    assert is_done(model, bench.results)
    stock = Stock(bench.results)
    rows, attack = stock.sweep.found[model], stock.sweep_attacks.found[model]
    assert tuple(rows.results) == SWEEP_EVALUATIONS and len(rows.labels) == TINY_RECORDS
    assert (rows.header["model"], rows.header["recipe"]["loss"]["margin"]) == ("rf5-m0.25", 0.25)
    assert len(attack.labels) == TINY.attacked and attack.header["attack"]["steps"] == TINY.attack_steps
    assert rows.header["weights_sha256"] == attack.header["weights_sha256"]

    kept = sweep_rows(bench.results, model).read_bytes()
    sweep_attack(bench.results, model).unlink()
    carry_out(model, bench)
    assert sweep_rows(bench.results, model).read_bytes() == kept, "what is there is not made again"


def test_rows_of_other_weights_are_made_again(bench: Bench) -> None:
    model = SweepModel(5, 0.25)
    carry_out(model, bench)
    sweep_attack(bench.results, model).unlink()
    (bench.work / model.name / "config.json").unlink()  # the run is lost, and trained again with other weights
    longer = Bench(sweep_runs.Scale(TINY.settings, 2, 1, 1, 20, 2, 2), bench.results, bench.work, bench.data_dir)
    carry_out(model, longer)
    stock = Stock(bench.results)
    headers = stock.sweep.found[model].header, stock.sweep_attacks.found[model].header
    assert headers[0]["weights_sha256"] == headers[1]["weights_sha256"]


def test_only_the_log_of_a_score_function_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "of the validation images" in carry_out(ScoreRun("softmax", 2), bench)
    curve = read_curve(score_curve(bench.results, ScoreRun("softmax", 2)))
    assert not curve.collapsed and len(curve.epochs) >= 1

    def diverges(recipe: Recipe, order: RunOptions) -> None:
        (order.out / "log.jsonl").parent.mkdir(parents=True)
        (order.out / "log.jsonl").write_text('{"step": 1, "loss": 3.0}\n{"step": 2, "clean": 0.1, "certified": 0}\n')
        raise Diverged("expected a finite loss")

    monkeypatch.setattr(training, "train", diverges)
    assert carry_out(ScoreRun("sigmoid", 0), bench) == "sigmoid-0: collapsed"
    curve = read_curve(score_curve(bench.results, ScoreRun("sigmoid", 0)))
    assert curve.collapsed and curve.clean == [0.1]


@pytest.mark.parametrize("run", [*SWEEP, *SCORE_RUNS], ids=lambda run: run.name)
def test_recipes_are_those_of_the_paper_but_smaller(run: SweepRun) -> None:
    recipe = recipe_of(run, FULL)
    network = recipe.table()["network"]
    assert (network["width"], recipe.data.name, recipe.evaluation.patch) == (192, "cifar10", "5x5")
    assert isinstance(recipe.loss, MarginLoss)
    if isinstance(run, SweepModel):
        assert network["kernels"] == list(CIFAR_KERNELS[run.receptive_field]) and recipe.loss.margin == run.margin
    else:
        assert network["step"] == run.step and recipe.evaluation.times == FULL.score_points


def test_runs_are_found_by_pattern() -> None:
    assert len(matching(["*"])) == 35
    assert [run.name for run in matching(["rf*"])][:4] == ["rf13-m0.25", "rf13-m0.50", "rf13-m0.75", "rf13-m1.00"]
    with pytest.raises(UsageError, match=r"Unknown run 'rf6'\. .*Known: "):
        matching(["rf6"])


def test_what_is_done_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def supervise(step: object, todo: list[SweepRun], bench: Bench, processes: int, deadline: float) -> None:
        for run in todo:
            seen.append(run.name)
            carry_out(run, bench)

    monkeypatch.setattr(sweep, "supervise", supervise)
    options = {"tiny": True, "out": bench.results, "work": bench.work, "data_dir": bench.data_dir}
    sweep.sweep(["heaviside-0"], **options)  # type: ignore[arg-type]
    sweep.sweep(["heaviside-[01]"], **options)  # type: ignore[arg-type]
    assert seen == ["heaviside-0", "heaviside-1"]
    with pytest.raises(UsageError, match="With --tiny, --out must not be studies/results"):
        sweep.sweep(["heaviside-0"], tiny=True)
