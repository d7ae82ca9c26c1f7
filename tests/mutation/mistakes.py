"""A handful of dangerous mistakes, each made on purpose in a copy of the package; prints which tests noticed."""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.forked import ROOT, Change, exit_codes

ORACLE = "tests/rules/test_oracle.py::test_leads_equal_the_definitions"
BRUTE_FORCE = "tests/rules/test_oracle.py::test_no_attacked_map_changes_a_certified_prediction"
DEFINITIONS = "tests/rules/test_definitions.py::test_leads_equal_the_definitions"
FOOTPRINTS = "tests/threats/test_footprint.py"


@dataclass(frozen=True)
class Mistake:
    """What goes wrong: an expression of a function, what is written instead, and a test that must fail."""

    place: str  # folder, module and function
    right: str
    wrong: str
    test: str

    @property
    def change(self) -> Change:
        """The file with the mistake, whatever its layout."""
        folder, module, *names = self.place.split(".")
        path = Path("src", "bagcert", folder, f"{module}.py")
        text = (ROOT / path).read_text("utf-8")
        wanted = ast.dump(ast.parse(self.right, mode="eval").body)
        nodes = ast.walk(definition(ast.parse(text), names))
        found = [node for node in nodes if isinstance(node, ast.expr) and ast.dump(node) == wanted]
        assert len(found) == 1, f"'{self.right}' is {len(found)} times in {self.place}"
        segment = ast.get_source_segment(text, found[0])
        assert segment is not None
        start = sum(len(line) for line in text.splitlines(keepends=True)[: found[0].lineno - 1])
        start = text.index(segment, start)
        return Change(path, f"{text[:start]}({self.wrong}){text[start + len(segment) :]}", (self.test,))


def definition(tree: ast.AST, names: list[str]) -> ast.AST:
    """The function, or the class and its method, of these names."""
    for name in names:
        (tree,) = (
            node
            for node in ast.iter_child_nodes(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        )
    return tree


MISTAKES = {
    "a tie is certified": Mistake("rules.rule.weakest", "lead > 0", "lead >= 0", f"{ORACLE}[0]"),
    "a tie goes to the highest class": Mistake(
        "rules.two_mask.consistent_class", "rival < plain[of]", "rival > plain[of]", f"{BRUTE_FORCE}[1]"
    ),
    "only some rivals count": Mistake(
        "rules.rule.weakest",
        "rivals_only(leads, predicted)",
        "rivals_only(leads, predicted)[:, :2]",
        f"{ORACLE}[0]",
    ),
    "the second mask is forgotten": Mistake(
        "rules.masking_rule.outside_pairs", "outside(rest, masks)", "outside(rest, masks)[..., :1]", f"{ORACLE}[0]"
    ),
    "a second mask is bounded by Δ, not by its positive part": Mistake(
        "rules.pairs.floors", "maps.clamp(min=0)", "maps", f"{DEFINITIONS}[4-none]"
    ),
    "against two patches one more mask is feared, not two": Mistake(
        "rules.two_patches.margins",
        "2 * masks.sums(without(gain, taken)).amax(dim=-1)",
        "masks.sums(without(gain, taken)).amax(dim=-1)",
        "tests/rules/test_two_patches.py::test_the_inference_is_that_of_the_definition",
    ),
    "of two patches the second is forgotten": Mistake(
        "rules.sums.largest_union",
        "int(rest[0, first])",
        "int(rest[0].max())",
        "tests/rules/test_two_patches.py::test_leads_of_two_patches_equal_the_definitions",
    ),
    "the largest region is counted once": Mistake(
        "rules.sums.LargestRegion._least_leads", "2 * (high - low)", "high - low", f"{ORACLE}[0]"
    ),
    "any mask will do for a smaller patch": Mistake(
        "rules.masking_rule.covering",
        "masks.sums(regions.masks().to(torch.int64)) == regions.sizes[:, None]",
        "masks.sums(regions.masks().to(torch.int64)) <= regions.sizes[:, None]",
        "tests/rules/test_bad_input.py::test_threats_that_do_not_fit",
    ),
    "the border is clipped one pixel early": Mistake(
        "threats.footprint.taps",
        "seen[:, :, None] == torch.arange(inputs)",
        "(seen[:, :, None] == torch.arange(inputs)) & (seen > 0)[:, :, None]",
        f"{FOOTPRINTS}::test_centered_fields_differ_by_axis",
    ),
    "wrap-around is lost": Mistake(
        "threats.footprint.Footprint.ablation",
        "(starts[:, None] + torch.arange(width, device=CPU)) % size",
        "(starts[:, None] + torch.arange(width, device=CPU)).clamp(max=size - 1)",
        f"{FOOTPRINTS}::test_ablations_wrap_around",
    ),
    "bounds wrap around": Mistake(
        "rules.sums.LargestRegion._least_leads",
        "(own(sums(scores.low), classes)[:, None] - sums(scores.high)).long()",
        "own(sums(scores.low), classes)[:, None] - sums(scores.high)",
        "tests/rules/test_ranges.py::test_far_bounds_prove_nothing_about_small_scores",
    ),
}


def main() -> None:
    changes = {mistake.change: name for name, mistake in MISTAKES.items()}
    print(json.dumps({changes[change]: code for change, code in exit_codes(changes, children=2)}))


if __name__ == "__main__":
    main()
