"""How scores become a class, and what each way can prove: one file per rule."""

from bagcert.errors import UsageError, unknown_name
from bagcert.rules.masked import Masked
from bagcert.rules.monotone import Monotone, capped_sum, trimmed_sum, weighted_sum
from bagcert.rules.rule import ABSTAIN, Certificate, Rule
from bagcert.rules.scores import Bounds, IntegerScores, read_scores
from bagcert.rules.sums import EveryRegion, LargestRegion
from bagcert.rules.two_mask import TwoMask
from bagcert.rules.unanimous import Unanimous

NAMED_RULES: dict[str, type[LargestRegion] | type[EveryRegion] | type[Masked] | type[TwoMask]] = {
    rule.name: rule for rule in (LargestRegion, EveryRegion, Masked, TwoMask)
}


def find_rule(rule: str | Rule) -> Rule:
    """A rule by its name with default settings, or the rule given."""
    if isinstance(rule, Rule):
        return rule
    if rule == Monotone.name:
        raise UsageError("expected an aggregator for rule 'monotone', got none; pass rule=Monotone(aggregate)")
    if rule == Unanimous.name:
        return Unanimous()  # not a named rule: it takes only the scores of views
    if str(rule) not in NAMED_RULES:
        raise unknown_name("rule", str(rule), [*NAMED_RULES, Monotone.name, Unanimous.name])
    return NAMED_RULES[rule]()


__all__ = [
    "ABSTAIN",
    "NAMED_RULES",
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
    "trimmed_sum",
    "weighted_sum",
]
