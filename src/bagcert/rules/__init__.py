"""How scores become a class, and what each way can prove: one file per rule, and one row in `RULES`.

May import: errors, program, threats.
"""

from bagcert.errors import UsageError, unknown_name
from bagcert.rules.certificate import ABSTAIN, Certificate
from bagcert.rules.detect import Detect
from bagcert.rules.masked import Masked
from bagcert.rules.monotone import Monotone, capped_sum, trimmed_sum, weighted_sum
from bagcert.rules.rule import Rule
from bagcert.rules.scores import Bounds, IntegerScores, read_scores
from bagcert.rules.sums import EveryRegion, LargestRegion
from bagcert.rules.top_classes import TopClasses
from bagcert.rules.two_mask import TwoMask
from bagcert.rules.unanimous import Unanimous

RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (LargestRegion, EveryRegion, Masked, TwoMask, Detect, Monotone, Unanimous)
}

MOST_DIGITS = 16  # of a threshold: none is larger than alerts.MOST, and Python reads no number of thousands of digits


def find_rule(rule: str | Rule) -> Rule:
    """A rule by its name with default settings, `NAME:T` with alerts above a lead of T units, or the rule given."""
    if isinstance(rule, Rule):
        return rule
    if not isinstance(rule, str):
        given = f"the class {rule.__name__}" if isinstance(rule, type) else type(rule).__name__
        raise UsageError(
            f"A rule must be a name like 'two-mask' or an object like TwoMask(), but is {given}. "
            f"Known names: {', '.join(sorted(RULES))}."
        )
    name, colon, above = rule.partition(":")
    if name not in RULES:
        raise unknown_name("rule", name, RULES)
    kind = RULES[name]
    if kind.asks is not None:
        words, argument = kind.asks
        raise UsageError(f"Rule '{name}' needs {words}. In Python, pass rule={kind.__name__}({argument}).")
    if not colon:
        return kind()
    if not (above.isascii() and above.isdigit() and len(above) <= MOST_DIGITS):
        raise UsageError(f"Cannot read the threshold of '{rule}'. Write whole score units, as in {name}:40.")
    return kind().alerting(int(above))


def raises_alerts(rule: str) -> bool:
    """Does a rule that is written like this raise alerts?"""
    return ":" in rule or (rule in RULES and RULES[rule].alert_above is not None)


def detects(rule: str) -> bool:
    """Does a rule that is written like this promise the answer or an alert, not the answer itself?"""
    name = rule.partition(":")[0]
    return name in RULES and RULES[name].detects


def rules_for(views: bool) -> list[str]:
    """The names that alone make a rule for scores of views, or for any other scores; of those that prove a class."""
    named = {name: kind for name, kind in RULES.items() if kind.asks is None and not kind.detects}
    return [name for name, kind in named.items() if kind.needs_views == views]


__all__ = [
    "ABSTAIN",
    "RULES",
    "Bounds",
    "Certificate",
    "Detect",
    "EveryRegion",
    "IntegerScores",
    "LargestRegion",
    "Masked",
    "Monotone",
    "Rule",
    "TopClasses",
    "TwoMask",
    "Unanimous",
    "capped_sum",
    "detects",
    "find_rule",
    "raises_alerts",
    "read_scores",
    "rules_for",
    "trimmed_sum",
    "weighted_sum",
]
