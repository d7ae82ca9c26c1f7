"""Rules, networks, score steps and threats say what others need of them; hardly anybody asks which one they are."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import bagcert
from bagcert.rules import RULES, Rule
from bagcert.scorers.base import NetworkConfig, Scorer
from bagcert.scorers.steps import STEPS, ScoreStep
from bagcert.scorers.weights import NETWORKS
from bagcert.threats import Threat

PACKAGE = Path(bagcert.__file__).parent
CODE = (PACKAGE, *(PACKAGE.parents[1] / folder for folder in ("studies", "benchmarks")))
OWN = ("rules", "scorers", "threats")  # where they are defined
FEWER_THAN = 5


def kinds_of(*bases: type) -> set[str]:
    """The names of all classes of ours below these."""
    found: set[type] = set()
    for base in bases:
        below: list[type] = base.__subclasses__()
        found |= {kind for kind in below if kind.__module__.startswith("bagcert.")}
    return {kind.__name__ for kind in found} | (kinds_of(*found) if found else set())


KINDS = kinds_of(Rule, Scorer, NetworkConfig, ScoreStep, Threat)
NAMES = {*RULES, *NETWORKS, *STEPS}


def names_in(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def compared(node: ast.expr) -> set[str]:
    """The names on one side of a comparison: a class, its `name`, or several of them; no call of one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {name for part in node.elts for name in compared(part)}
    return names_in(node) if isinstance(node, ast.Name | ast.Attribute) else set()


def texts_in(node: ast.AST) -> set[object]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}


def questions(tree: ast.AST) -> Iterator[ast.AST]:
    """Where code asks for the kind of one of them, by its class, its attributes or its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asked = node.func.id in ("isinstance", "issubclass") and names_in(node.args[1]) & KINDS
            if asked or (node.func.id == "hasattr" and names_in(node.args[0]) != {"os"}):
                yield node
        elif isinstance(node, ast.Compare):
            operands = (node.left, *node.comparators)
            kinds = any(compared(side) & KINDS for side in operands)
            if kinds or any(texts_in(side) & NAMES for side in operands):
                yield node
        elif isinstance(node, ast.match_case) and (names_in(node.pattern) & KINDS or texts_in(node.pattern) & NAMES):
            yield node


def test_hardly_anybody_asks_which_rule_or_network_it_is() -> None:
    found = []
    for folder in CODE:
        for path in sorted(folder.rglob("*.py")):
            if path.relative_to(folder).parts[0] not in OWN:
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found += [f"{path}:{getattr(node, 'lineno', '?')}: {ast.unparse(node)}" for node in questions(tree)]
    assert len(found) < FEWER_THAN, "\n".join(found)


@pytest.mark.parametrize(
    ("code", "asked"),
    [
        ("isinstance(rule, Masked | TwoMask)", 1),
        ("isinstance(defense.scorer, (AblationScorer, HidingScorer))", 1),
        ("type(rule) is TwoMask", 1),
        ("hasattr(scorer, 'hidden')", 1),
        ("rule.name == 'two-mask' and self.rule in ('masked', 'two-mask')", 2),
        ("rule.name != TwoMask.name", 1),
        ("match rule:\n    case TwoMask():\n        pass\n    case 'ensemble':\n        pass", 2),
        ("EveryRegion().worst_rank(scores, labels, regions) <= 5", 0),
        ("isinstance(threat, Threat) or scorer.views or isinstance(rule, Rule)", 0),
        ("rules = ['two-mask']", 0),
    ],
)
def test_every_way_to_ask_is_seen(code: str, asked: int) -> None:
    assert len(list(questions(ast.parse(code)))) == asked
