"""A handful of dangerous mistakes, each made on purpose in a copy of the package; prints which tests noticed."""

import json
from pathlib import Path

from tests.mutation.forked import ROOT, Change, exit_codes

ORACLE = "tests/rules/test_oracle.py::test_leads_equal_the_definitions"
BRUTE_FORCE = "tests/rules/test_oracle.py::test_no_attacked_map_changes_a_certified_prediction"
DEFINITIONS = "tests/rules/test_definitions.py::test_leads_equal_the_definitions"
FOOTPRINTS = "tests/threats/test_footprint.py"

# What goes wrong: the file, the text as it is, the mistake, and a test that must fail.
MISTAKES = {
    "a tie is certified": ("rules/rule.py", "certified=lead > 0,", "certified=lead >= 0,", f"{ORACLE}[0]"),
    "a tie goes to the highest class": (
        "rules/two_mask.py",
        "(duel == 0) & (rival < plain[of])",
        "(duel == 0) & (rival > plain[of])",
        f"{BRUTE_FORCE}[1]",
    ),
    "only some rivals count": (
        "rules/rule.py",
        "rivals_only(leads, predicted).flatten(1)",
        "rivals_only(leads, predicted)[:, :2].flatten(1)",
        f"{ORACLE}[0]",
    ),
    "the second mask is forgotten": (
        "rules/masking_rule.py",
        "return outside(rest, masks)",
        "return outside(rest, masks)[..., :1]",
        f"{ORACLE}[0]",
    ),
    "a second mask is bounded by Δ, not by its positive part": (
        "rules/two_mask.py",
        "masks.sums(delta.clamp(min=0))",
        "masks.sums(delta)",
        f"{DEFINITIONS}[4-none]",
    ),
    "the largest region is counted once": (
        "rules/sums.py",
        "- 2 * (high - low) * size",
        "- (high - low) * size",
        f"{ORACLE}[0]",
    ),
    "any mask will do for a smaller patch": (
        "rules/masking_rule.py",
        "== regions.sizes[:, None]",
        "<= regions.sizes[:, None]",
        "tests/rules/test_bad_input.py::test_threats_that_do_not_fit",
    ),
    "the border is clipped one pixel early": (
        "threats/footprint.py",
        "return (seen[:, :, None] == torch.arange(inputs)).any(dim=1)",
        "return ((seen[:, :, None] == torch.arange(inputs)) & (seen > 0)[:, :, None]).any(dim=1)",
        f"{FOOTPRINTS}::test_centered_fields_differ_by_axis",
    ),
    "wrap-around is lost": (
        "threats/footprint.py",
        "torch.arange(width)) % size",
        "torch.arange(width)).clamp(max=size - 1)",
        f"{FOOTPRINTS}::test_ablations_wrap_around",
    ),
    "bounds wrap around": (
        "rules/sums.py",
        "(own(sums(scores.low), predicted)[:, None] - sums(scores.high)).long()",
        "(own(sums(scores.low), predicted)[:, None] - sums(scores.high))",
        "tests/rules/test_ranges.py::test_far_bounds_prove_nothing_about_small_scores",
    ),
}


def main() -> None:
    changes = {}
    for name, (file, right, wrong, test) in MISTAKES.items():
        path = Path("src", "bagcert", file)
        text = (ROOT / path).read_text("utf-8")
        assert text.count(right) == 1, f"'{right}' is {text.count(right)} times in {path}"
        changes[Change(path, text.replace(right, wrong), (test,))] = name
    print(json.dumps({changes[change]: code for change, code in exit_codes(changes, children=2)}))


if __name__ == "__main__":
    main()
