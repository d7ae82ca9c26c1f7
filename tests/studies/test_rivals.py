"""The rivals' runs on a stand-in for CIFAR-10: what they keep is what the comparison reads."""

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bagcert.attacks import AttackSettings
from bagcert.defense import load
from bagcert.errors import UsageError
from bagcert.rows.attacked import read_attack_rows
from bagcert.rows.format import Evaluation
from bagcert.scorers.ablation import AblationConfig
from bagcert.scorers.base import NetworkConfig
from bagcert.scorers.classifier import WHOLE
from bagcert.scorers.cleanser import CleanserConfig
from bagcert.scorers.ensemble import EnsembleConfig
from bagcert.scorers.interval import IntervalConfig
from bagcert.scorers.residual import ResidualConfig
from bagcert.stored_models import card
from bagcert.training.loop import RunOptions
from bagcert.training.recipe import Recipe
from studies.rivals import run as rivals
from studies.rivals import runs as rivals_runs
from studies.rivals.measure import measure
from studies.rivals.plan import MAIN_PATCH, PATCHES, RIVALS, Rival, attack_path, cost_path, rows_path
from studies.rivals.results import Standing, standings
from studies.rivals.runs import Bench, is_done, is_prepared, jobs, matching, prepare, recipe_of
from studies.rivals.scale import EFFORTS, FULL, PLANNED, TINY
from tests.data.tiny_cifar10 import TinyCifar10

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tiny_cifar10: TinyCifar10, tmp_path: Path) -> Bench:
    tiny_cifar10.write(tmp_path / "data")
    return Bench(TINY, tmp_path / "results", tmp_path / "work", tmp_path / "data")


def carry_out(name: str, bench: Bench) -> None:
    if not is_prepared(name, bench):
        prepare([name], bench)
    measure(name, bench)


def standing_of(name: str, bench: Bench) -> Standing:
    return next(standing for standing in standings(bench.results) if standing.name == name)


@pytest.mark.parametrize("name", ["ds-row", "mask-bn", "ibp", "patchcleanser", "bagcert"])
def test_a_rival_is_trained_certified_attacked_and_measured(name: str, bench: Bench) -> None:
    assert not is_done(name, bench)
    words = prepare([name], bench)
    assert words.startswith(f"{name}: ") and "certified" in words and not is_done(name, bench)
    assert measure(name, bench).endswith("s for 10,000 images") and is_done(name, bench)
    standing, rival = standing_of(name, bench), rivals_runs.rival_of(name)
    assert set(standing.results) == {Evaluation(patch, rule) for patch in PATCHES for rule in rival.rules}
    assert all(shares.images == TINY.most for shares in standing.results.values())
    assert standing.attack is not None and standing.attack.header["attack"]["steps"] == TINY.steps
    assert standing.attack.header["precision"] == ("float64" if name == "ibp" else "float32")
    assert standing.attack.header["arithmetic"].startswith(f"torch, cpu, {standing.attack.header['precision']}, eager")
    cost = standing.cost
    assert cost is not None and (cost.defense, cost.patch, cost.rule) == (name, MAIN_PATCH, rival.rules[0])
    assert cost.seconds > 0 and cost.flops > 0 and cost.training.recipe == rival.entry.recipe
    assert (cost.ties is None) == (name in ("ibp", "patchcleanser", "bagcert"))

    kept = {path: path.read_bytes() for path in (bench.results / "rivals").iterdir()}
    attack_path(bench.results, name).unlink()
    assert not is_done(name, bench)
    prepare([name], bench)
    rows = [rows_path(bench.results, part) for part in rival.parts]
    assert all(path.read_bytes() == kept[path] for path in rows), "what is there is not made again"


def test_weights_of_the_same_training_are_taken_over(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out("ds-column", replace(bench, processes=3))
    trained: list[Path] = []
    monkeypatch.setattr(rivals_runs, "train_quietly", lambda recipe, order: trained.append(order.out))
    carry_out("mask-ds", bench)
    assert not trained
    column, masked = load(bench.work / "ds-column"), load(bench.work / "mask-ds")
    assert (masked.rule.name, masked.scorer.step.name) == ("masked", "softmax")
    for name, value in column.scorer.state_dict().items():
        assert torch.equal(masked.scorer.state_dict()[name], value)
    cost = standing_of("mask-ds", bench).cost
    assert cost is not None and cost.ties is not None
    assert (cost.training.weights_of, cost.training.beside) == ("ds-column", 2)


def test_of_a_shipped_model_only_costs_are_measured(bench: Bench) -> None:
    assert measure("cifar10-small", bench).endswith("s for 10,000 images")
    assert [path.name for path in (bench.results / "rivals").iterdir()] == ["cifar10-small.json"]
    cost = standing_of("cifar10-small", bench).cost
    assert cost is not None and cost.passes == 1 and cost.parameters > 10**6
    assert cost.training.seconds == card("cifar10-small")["seconds"] and is_done("cifar10-small", bench)
    path = cost_path(bench.results, "cifar10-small")
    path.write_text(path.read_text().replace(cost.weights_sha256, "0"))
    assert not is_done("cifar10-small", bench), "it has been shipped anew since"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (ResidualConfig(width=2, kernels=(1,)), 1),
        (EnsembleConfig(width=2, kernels=(1,), members=2), 1),
        (EnsembleConfig(width=2, kernels=(1,), members=2, mirrored=True), 2),
        (AblationConfig(width=2, blocks=(1,)), 32),
        (AblationConfig(width=2, blocks=(1,), kept=(12, 12)), 1024),
        (CleanserConfig(width=2, blocks=(1,)), 666),
        (IntervalConfig(widths=(2,), strides=(2,), features=2), 785),
    ],
)
def test_passes_are_counted(config: NetworkConfig, expected: int) -> None:
    assert config.build((32, 32), (0.0,), (1.0,)).passes == expected


def test_arithmetic_is_counted_for_one_image(bench: Bench) -> None:
    """Stem, one block and head, whose two features are filled up to eight, for every ablation."""
    carry_out("ds-row", bench)
    cost = standing_of("ds-row", bench).cost
    assert cost is not None
    stem, block, head = 6 * 2 * 9 * 1024, 2 * 2 * 2 * 9 * 1024, WHOLE * 10
    assert cost.flops == 32 * 2 * (stem + block + head)


@pytest.mark.parametrize("rival", RIVALS, ids=lambda rival: rival.name)
def test_the_planned_recipes_are_the_shipped_ones(rival: Rival) -> None:
    recipe = recipe_of(rival, PLANNED)
    assert recipe.network == rival.entry.network and recipe.evaluation.patch == MAIN_PATCH
    assert recipe.evaluation.rule == rival.rules[0]


def test_only_the_papers_own_network_is_cut(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, float | None] = {}

    def note(recipe: Recipe, order: RunOptions) -> None:
        assert order.final and order.resume
        asked[order.out.name] = order.minutes
        raise UsageError("far enough")

    monkeypatch.setattr(rivals_runs, "train_quietly", note)
    planned = pickle.loads(pickle.dumps(replace(bench, scale=PLANNED, cut_minutes=3.0)))  # as a worker gets it
    for name in ("bagcert", "ds-row"):
        with pytest.raises(UsageError, match="far enough"):
            prepare([name], planned)
    assert asked == {"bagcert": 3.0, "ds-row": None}


def test_efforts_are_those_that_the_page_states() -> None:
    page = (Path(__file__).parents[2] / "docs" / "comparison.md").read_text(encoding="utf-8")
    assert EFFORTS.keys() == {"ds-block", "patchcleanser", "ibp"}
    for name, effort in {**{f"`{name}`": effort for name, effort in EFFORTS.items()}, "all others": FULL}.items():
        attack = effort.attack
        images = (effort.images, effort.other_images, effort.attacked)
        cells = [name, *(f"{count:,}" for count in images), attack.steps, attack.step_size, attack.places]
        assert f"| {' | '.join(map(str, cells))} |\n" in page, name
        others = replace(attack, steps=FULL.attack.steps, step_size=FULL.attack.step_size, places=FULL.attack.places)
        assert others == FULL.attack == AttackSettings()


def test_runs_are_found_by_pattern_and_follow_each_other() -> None:
    names = matching(["*"])
    assert names[:6] == ["cifar10", "cifar10-distilled", "cifar10-small", "cifar10-votes", "ds-column", "mask-ds"]
    assert names[-1] == "bagcert"
    assert matching(["ds-*"]) == ["ds-column", "ds-row", "ds-block"]
    with pytest.raises(UsageError, match=r"Unknown rival or shipped model 'ipb'\. Did you mean 'ibp'\? Known: "):
        matching(["ipb"])


def test_jobs_are_what_is_left(bench: Bench) -> None:
    found = jobs(matching(["*"]), bench)
    slow, quick = [["bagcert"], ["ds-block"], ["patchcleanser"], ["ibp"]], ["ds-column", "mask-ds"]
    assert found[:5] == [*slow, quick]
    assert sorted(name for job in found for name in job) == sorted(rival.name for rival in RIVALS)
    prepare(["ds-row"], bench)
    assert jobs(["cifar10-small", "ds-row", "ibp"], bench) == [["ibp"]]


def test_costs_of_a_lost_run_are_not_those_of_another(bench: Bench) -> None:
    prepare(["clipped-bagnet"], bench)
    (bench.work / "clipped-bagnet" / "config.json").unlink()
    with pytest.raises(UsageError, match=r"The run behind the rows of clipped-bagnet is not in .*\. Remove"):
        measure("clipped-bagnet", bench)


def test_what_is_done_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, list[str]]] = []

    def supervise(
        step: Callable[[list[str], Bench], str], todo: list[list[str]], bench: Bench, processes: int, deadline: float
    ) -> None:
        for job in todo:
            seen.append((step.__name__, job))
            step(job, bench)

    monkeypatch.setattr(rivals, "supervise", supervise)
    options = {"tiny": True, "out": bench.results, "work": bench.work.parent, "data_dir": bench.data_dir}
    rivals.run(["clipped-bagnet"], **options)  # type: ignore[arg-type]
    rivals.run(["clipped-bagnet"], **options)  # type: ignore[arg-type]
    assert seen == [("prepare", ["clipped-bagnet"]), ("measure_job", ["clipped-bagnet"])]
    assert len(read_attack_rows(attack_path(bench.results, "clipped-bagnet")).labels) == TINY.most
    with pytest.raises(UsageError, match="With --tiny, --out must not be studies/results"):
        rivals.run(["clipped-bagnet"], tiny=True)
