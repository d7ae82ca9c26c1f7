"""A new rule, network, score step or patch shape is one class or function and one row of a table.

Each is taken through every command; a part that does not know it says so in one line.
"""

import json
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor

from bagcert.attacks.goals import GOALS, against_sums
from bagcert.defense import load
from bagcert.onnx.graph import Graph
from bagcert.onnx.rule_graphs import GRAPHS, RuleAnswers, ScoreValues, every_region
from bagcert.rows.verify.conditions import CONDITIONS, VIEW_CONDITIONS, Condition, Finding
from bagcert.rows.verify.conditions import every_region as every_region_condition
from bagcert.rows.verify.reach import Floats, Reach
from bagcert.rules import RULES
from bagcert.scorers.steps import STEPS
from bagcert.scorers.weights import NETWORKS
from bagcert.threats import Regions
from bagcert.threats.notation import NOTATIONS, Notation
from tests.cli.calling import call
from tests.contracts.toys import Fearful, SingleConfig, SingleScorer, StairStep, read_plus, save_single_run, twice
from tests.rows.digit_runs import DIGITS

LIMIT = ("--limit", "24")
IMAGES = next(iter(DIGITS.split("test").batches(64, torch.device("cpu")))).images


class Bench:
    """A saved run, and every command on it."""

    def __init__(self, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.run, self.folder, self.monkeypatch, self.capsys = run, run.parent, monkeypatch, capsys
        self.rows, self.graph = self.folder / "rows.jsonl", self.folder / "graph.onnx"
        monkeypatch.chdir(self.folder)

    def call(self, *words: str) -> str:
        """What a command that succeeds prints."""
        self.capsys.readouterr()
        code = call(self.monkeypatch, *words)
        printed = self.capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    def refused(self, *words: str) -> str:
        """The one line of a command that is refused."""
        self.capsys.readouterr()
        assert call(self.monkeypatch, *words) == 2
        lines = self.capsys.readouterr().err.strip().splitlines()
        assert len(lines) == 1, lines
        return lines[0]

    def certify(self, *words: str) -> None:
        """Rows with scores."""
        self.call("certify", str(self.run), *LIMIT, *words, "--scores", "--out", str(self.rows))

    def certified(self, patch: str = "1x1", rule: str = "every-region") -> Tensor:
        """Which of some images are certified, right or wrong."""
        return load(self.run).against(patch, rule).certify(IMAGES).certified

    def report(self) -> str:
        self.call("report", str(self.rows), "--out", str(self.folder / "page"))
        return next((self.folder / "page").rglob("*.html")).read_text(encoding="utf-8")

    def attack(self, *words: str) -> None:
        settings = ("--steps", "5", "--step-size", "0.3", "--json")
        found = json.loads(self.call("attack", str(self.run), *LIMIT, *words, *settings))
        assert found["flips_of_certified"] == 0
        assert found["certified_accuracy"] <= found["attacked_accuracy"] <= found["clean_accuracy"]

    def verify(self) -> str:
        printed = self.call("verify", str(self.rows))
        assert "all hold" in printed
        return printed

    def export(self, patch: str = "1x1", rule: str = "every-region") -> None:
        """The graph gives the certificates of the defense."""
        self.call("export", str(self.run), "--patch", patch, "--rule", rule, "--out", str(self.graph))
        expected = load(self.run).against(patch, rule).certify(IMAGES)
        session = onnxruntime.InferenceSession(str(self.graph))
        names = ("class", "certified", "lead")
        found = dict(zip(names, session.run(list(names), {"images": IMAGES.numpy()}), strict=True))
        assert found["class"].tolist() == expected.predicted.tolist()
        assert found["certified"].tolist() == expected.certified.tolist()
        assert expected.lead is not None and found["lead"].tolist() == expected.lead.tolist()


@pytest.fixture
def votes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    monkeypatch.setitem(NETWORKS, "single", SingleConfig)
    return Bench(save_single_run(tmp_path / "run"), monkeypatch, capsys)


FEARFUL = ("--rule", "fearful")


def test_a_rule_needs_one_class_and_one_row(votes: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What knows it by the class alone works; attack, second opinion and graph say that they lack it."""
    assert "fearful" in votes.refused("certify", str(votes.run), *FEARFUL)
    monkeypatch.setitem(RULES, "fearful", Fearful)
    votes.certify(*FEARFUL)
    assert 0 < int(votes.certified(rule="fearful").sum()) < int(votes.certified().sum())
    assert "fearful" in votes.report()
    assert "Rule 'fearful' cannot be attacked" in votes.refused("attack", str(votes.run), *LIMIT, *FEARFUL)
    assert "Rule 'fearful' in the rows cannot be verified." in votes.refused("verify", str(votes.rows))
    export = ("export", str(votes.run), *FEARFUL, "--out", str(votes.graph))
    assert "Rule 'fearful' cannot be exported." in votes.refused(*export)


def fearful_graph(
    graph: Graph, scores: ScoreValues, regions: Regions, classes: int, bounds: tuple[int, int]
) -> RuleAnswers:
    return every_region(graph, scores, regions, classes, twice(bounds))


def fearful_condition(scores: Floats, claimed: int, reach: Reach, masks: Reach, bounds: tuple[int, int]) -> Finding:
    return every_region_condition(scores, claimed, reach, masks, twice(bounds))


def test_attack_second_opinion_and_graph_take_a_rule_by_one_row_each(
    votes: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "fearful", Fearful)
    monkeypatch.setitem(GOALS, "fearful", against_sums)
    monkeypatch.setitem(CONDITIONS, "fearful", Condition(fearful_condition))
    monkeypatch.setitem(GRAPHS, "fearful", fearful_graph)
    votes.certify(*FEARFUL)
    votes.verify()
    votes.attack(*FEARFUL)
    votes.export(rule="fearful")


@pytest.mark.slow
@pytest.mark.parametrize("step", ["heaviside", "stair"])
def test_a_network_and_a_score_step_need_one_class_and_one_row_each(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NETWORKS, "single", SingleConfig)
    monkeypatch.setitem(STEPS, "stair", StairStep())
    bench = Bench(save_single_run(tmp_path / "run", step), monkeypatch, capsys)
    bench.certify()
    assert bool(bench.certified().any())
    assert "every-region" in bench.report()
    bench.verify()
    bench.attack()
    bench.export()
    if step == "stair":
        refused = bench.refused("export", str(bench.run), "--slack", "1", "--out", str(bench.graph))
        assert "Scores by 'stair' take no guard band" in refused
    else:
        assert '"passed": true' in bench.call("audit", str(bench.run), "--json")


def test_a_network_that_does_not_say_what_makes_its_footprint_is_not_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(NETWORKS, "single", SingleConfig)
    monkeypatch.delattr(SingleScorer, "reach")
    bench = Bench(save_single_run(tmp_path / "run"), monkeypatch, capsys)
    bench.certify()
    assert "The footprint in the rows names neither layers nor pixels nor kept." in bench.refused(
        "verify", str(bench.rows)
    )


PLUS = ("--patch", "plus:3")


@pytest.mark.slow
def test_a_patch_shape_needs_one_function_and_one_row(votes: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules and attacks take it; the second opinion knows its own shapes only."""
    assert "Write it like 5x5, 5, (5, 5), 2.4%, area:24, disk:5" in votes.refused("certify", str(votes.run), *PLUS)
    monkeypatch.setitem(NOTATIONS, "plus:3", Notation(r"plus:(\d)", read_plus))
    assert "area:24, disk:5, plus:3, 5x5,2x12 or 2*5x5" in votes.refused("certify", str(votes.run), "--patch", "five")
    votes.certify(*PLUS)
    assert "plus:3" in votes.report()
    votes.attack(*PLUS)
    for rule in ("every-region", "two-mask"):
        votes.export("plus:3", rule)
    assert "Cannot read the patch 'plus:3' in the rows." in votes.refused("verify", str(votes.rows))
    assert "Write 'plus:3,2x2'." in votes.refused("certify", str(votes.run), "--patch", "plus:3+2x2")
    dot, cross, square = (votes.certified(patch) for patch in ("1x1", "plus:3", "3x3"))
    assert bool(((square <= cross) & (cross <= dot)).all()) and not torch.equal(cross, dot), "one lies inside another"
    either, long = votes.certified("plus:3,1x5"), votes.certified("1x5")
    assert torch.equal(either, cross & long) and not torch.equal(either, cross), "the attacker chooses"


def test_what_each_rule_lacks_is_known() -> None:
    tables = {"attack": set(GOALS), "verify": {*CONDITIONS, *VIEW_CONDITIONS}, "export": set(GRAPHS)}
    lacks = {rule: {part for part, table in tables.items() if rule not in table} for rule in RULES}
    assert {rule: parts for rule, parts in lacks.items() if parts} == {
        "masked": {"export"},
        "unanimous": {"export"},
        "monotone": {"verify", "export"},  # by its name alone there is none
    }
    assert all(table <= set(RULES) for table in tables.values())
