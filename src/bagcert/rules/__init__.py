"""How scores become a class, and what each way can prove: one file per rule, and one row in `RULES`.

May import: errors, program, threats.
"""

from bagcert.errors import UsageError, unknown_name
from bagcert.rules.masked import Masked
from bagcert.rules.monotone import Monotone, capped_sum, trimmed_sum, weighted_sum
from bagcert.rules.rule import ABSTAIN, Certificate, Rule
from bagcert.rules.scores import Bounds, IntegerScores, read_scores
from bagcert.rules.sums import EveryRegion, LargestRegion
from bagcert.rules.two_mask import TwoMask
from bagcert.rules.unanimous import Unanimous

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (LargestRegion, EveryRegion, Masked, TwoMask, Monotone, Unanimous)
}


def find_rule(rule: str | Rule) -> Rule:
    """A rule by its name with default settings, or the rule given."""
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str):
        given = f"the class {rule.__name__}" if isinstance(rule, type) else type(rule).__name__
        raise UsageError(
            f"A rule must be a name like 'two-mask' or an object like TwoMask(), but is {given}. "
            f"Known names: {', '.join(sorted(RULES))}."
        )
    if rule not in RULES:
        raise unknown_name("rule", rule, RULES)
    kind = RULES[rule]
    if kind.asks is not None:
        words, argument = kind.asks
        raise UsageError(f"Rule '{rule}' needs {words}. Pass rule={kind.__name__}({argument}).")
    return kind()


def rules_for(views: bool) -> list[str]:
    """The names that alone make a rule for scores of views, or for any other scores."""
    return [name for name, kind in RULES.items() if kind.asks is None and kind.needs_views == views]


__all__ = [
    "ABSTAIN",
    "RULES",
    "Bounds",
    "Certificate",
    "EveryRegion",
    "IntegerScores",
    "LargestRegion",
    "Masked",
    "Monotone",
    "Rule",
    "TwoMask",
    "Unanimous",
    "capped_sum",
    "find_rule",
    "read_scores",
    "rules_for",
    "trimmed_sum",
    "weighted_sum",
]
